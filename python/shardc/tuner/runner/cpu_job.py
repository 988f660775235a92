"""What the process of the CPU runner does: checks and times libraries of one task."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch_mlir import ir

from shardc.backends.body.graph import symbols_and_shapes
from shardc.dialects.kern.size import hint
from shardc.dialects.kern.types import read_builtin
from shardc.passes.fuse.flat import FLAT, SIZE
from shardc.runtime.kernel_call import Output
from shardc.runtime.kernels import Library
from shardc.tuner.extract_tasks import configured
from shardc.tuner.runner.decision import Pairs, Rule, take_turns
from shardc.tuner.runner.reference import Reference, make_reference
from shardc.tuner.task import NAME, Task

SETS = 2
"""Sets of inputs that calls take in turns, and results that stay alive: a call reads and writes what was used a call
ago, which is in the caches if it is small, as in a program whose kernels follow each other."""
READ_BYTES = 1 << 18
"""Results of so many bytes are read once where a call's time is taken, as by the kernel that follows: else what writes
past the caches would seem to cost nothing."""
SAMPLE_S = 2e-4
"""Calls of short kernels are timed together, for about so long."""


@dataclass(frozen=True)
class Begin:
    """Makes the inputs and the reference of a task."""

    task: Task


@dataclass(frozen=True)
class Measure:
    """Checks ``candidate``, then times it against ``incumbent``, both libraries. The answer is Pairs, or in words how
    its results are wrong.
    """

    candidate: Path
    incumbent: Path
    rule: Rule


class NotBegun(Exception):
    """The process does not know the task yet."""


def run(asked: Begin | Measure) -> Pairs | str | None:
    """What is asked; Begin answers None. Raises NoReference."""
    global _bench
    if isinstance(asked, Begin):
        _bench = None
        _bench = _Bench(asked.task)
        return None
    if _bench is None:
        raise NotBegun
    return _bench.measure(asked)


_bench: _Bench | None = None


class _Bench:
    """A task, with its inputs and reference, and the kernels that were loaded."""

    def __init__(self, task: Task) -> None:
        torch.set_num_threads(task.threads)
        module = configured(task, None)
        (view,) = module.body
        function = view.operation
        self._reference: Reference = make_reference(function)
        self._outputs, self._size = _outputs(function), SIZE if FLAT in function.attributes else None
        self._written = sorted(o for o in self._outputs if isinstance(o, int))
        self._sets = [self._copies() for _ in range(SETS)]
        self._alive: deque[object] = deque(maxlen=SETS)
        self._kernels: dict[Path, Callable[..., tuple[torch.Tensor, ...]]] = {}
        self._clock = time.thread_time if task.threads == 1 else time.perf_counter

    def measure(self, asked: Measure) -> Pairs | str:
        candidate, incumbent = (self._kernel(path) for path in (asked.candidate, asked.incumbent))
        if problem := self._reference.problem(candidate(*self._copies())):
            return problem
        calls = max(1, round(SAMPLE_S / max(self._timed(incumbent, 1, 0), 1e-7)))
        times = [
            lambda number, kernel=kernel: self._timed(kernel, calls, number)
            for kernel in (candidate, incumbent)
        ]
        for time_ in times:
            time_(0)  # a first call also loads pages and makes workspace
        return take_turns(*times, asked.rule)

    def _kernel(self, path: Path) -> Callable[..., tuple[torch.Tensor, ...]]:
        if path not in self._kernels:
            self._kernels[path] = Library(path).kernel(NAME, self._outputs, self._size)
        return self._kernels[path]

    def _copies(self) -> list[torch.Tensor | int]:
        return [v.clone() if isinstance(v, torch.Tensor) else v for v in self._reference.inputs]

    def _timed(self, kernel: Callable[..., tuple[torch.Tensor, ...]], calls: int, number: int) -> float:
        """Seconds of a call and of reading its results, on average over ``calls``. What a kernel writes in place is restored before the clock
        runs.
        """
        for argument in self._written:
            for each in self._sets:
                each[argument].copy_(self._reference.inputs[argument])
        alive, sets = self._alive.append, [self._sets[(number + n) % SETS] for n in range(SETS)]
        start = self._clock()
        for call in range(calls):
            results = kernel(*sets[call % SETS])
            for result in results:
                if result.nbytes >= READ_BYTES:
                    _read(result)
            alive(results)
        return (self._clock() - start) / calls


def _read(result: torch.Tensor) -> None:
    """At the rate of memory, whatever its dtype."""
    result.reshape(-1).view(torch.uint8)[: result.nbytes // 8 * 8].view(torch.int64).sum()


def _outputs(function: ir.Operation) -> list[Output]:
    """As :meth:`shardc.runtime.kernels.Library.kernel` takes them."""
    place = function.attributes["kern.in_place"] if "kern.in_place" in function.attributes else ()
    pairs = list(place)
    in_place = dict(zip(pairs[::2], pairs[1::2], strict=True))
    block = function.regions[0].blocks[0]
    symbols, shapes = symbols_and_shapes(function)
    arguments, results = (
        len(block.arguments) - len(symbols),
        list(list(block.operations)[-1].operation.operands),
    )
    made: list[Output] = []
    for number, value in enumerate(results):
        type_ = read_builtin(value.type)
        assert type_ is not None
        shape = shapes[arguments + number] if shapes else type_.shape
        made.append(in_place[number] if number in in_place else (tuple(hint(n) for n in shape), type_.dtype))
    return made
