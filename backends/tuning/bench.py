"""State of a runner's process: one task, its inputs, its reference and the loaded kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch_mlir import ir

from shardc.backends.body.signature import in_place_of, symbols_and_shapes
from shardc.backends.tuning.decision import Pairs, Rule, take_turns
from shardc.backends.tuning.kernel_text import configured
from shardc.backends.tuning.reference import make_reference
from shardc.backends.tuning.task import Task
from shardc.dialects.kern.size import hint
from shardc.dialects.kern.types import read_builtin
from shardc.passes.fuse.bodies.flat import FLAT, SIZE
from shardc.runtime.kernels.kernel_call import Output

SETS = 2
"""Number of input sets between which calls alternate, so that caches behave as in a program."""

Kernel = Callable[..., tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Measure:
    """Request to check ``candidate`` and time it against ``incumbent``.

    The answer is Pairs, or an error text.
    """

    candidate: Path
    incumbent: Path
    rule: Rule


class NotBegun(Exception):
    """Raised if the process does not have the task yet."""


class Job:
    """Function of a runner's process. It keeps the bench, made by ``of``, of the last task."""

    def __init__(self, of: Callable[[Task], Bench]) -> None:
        self._of = of
        self._bench: Bench | None = None

    def __call__(self, asked: Task | Measure) -> Pairs | str | None:
        """Make the inputs and the reference of a task, or run a Measure.

        Raises NoReference, NotBegun, BadTriton.
        """
        if isinstance(asked, Task):
            self._bench = None  # frees its memory for the next bench
            self._bench = self._of(asked)
            return None
        if self._bench is None:
            raise NotBegun
        return self._bench.measure(asked)


class Bench(ABC):
    """Task on a device. Raises NoReference."""

    def __init__(self, task: Task, device: str = "cpu") -> None:
        self.device = torch.device(device)
        module = configured(task, None)
        (view,) = module.body
        function = view.operation
        self._reference = make_reference(function)
        self.outputs, self.size = outputs_of(function), SIZE if FLAT in function.attributes else None
        self._written = sorted(o for o in self.outputs if isinstance(o, int))
        self.sets = [self._copies() for _ in range(SETS)]
        self._kernels: dict[Path, Kernel] = {}

    def measure(self, asked: Measure) -> Pairs | str:
        candidate, incumbent = (self._kernel(path) for path in (asked.candidate, asked.incumbent))
        if problem := self._reference.problem([r.cpu() for r in candidate(*self._copies())]):
            return problem
        for kernel in (candidate, incumbent):
            self._timed(kernel, 1, 0)  # the first call also loads pages and allocates workspace
        calls = self.calls(incumbent)

        def timed(kernel: Kernel) -> Callable[[int], float]:
            return lambda number: self._timed(kernel, calls, number)

        return take_turns(timed(candidate), timed(incumbent), asked.rule)

    @abstractmethod
    def load(self, path: Path) -> Kernel:
        """Load the kernel that a builder wrote to ``path``."""

    @abstractmethod
    def calls(self, incumbent: Kernel) -> int:
        """Return how many calls to time together."""

    @abstractmethod
    def seconds(self, kernel: Kernel, calls: int, number: int) -> float:
        """Return the seconds of a call, averaged over ``calls``. The first call uses input set ``number``."""

    def _timed(self, kernel: Kernel, calls: int, number: int) -> float:
        """Do the same, after restoring the inputs that the kernel overwrites."""
        for argument in self._written:
            value = self._reference.inputs[argument]
            for each in self.sets:
                overwritten = each[argument]
                assert isinstance(overwritten, torch.Tensor) and isinstance(value, torch.Tensor)
                overwritten.copy_(value)
        return self.seconds(kernel, calls, number)

    def _kernel(self, path: Path) -> Kernel:
        if path not in self._kernels:
            self._kernels[path] = self.load(path)
        return self._kernels[path]

    def _copies(self) -> list[torch.Tensor | int]:
        inputs = self._reference.inputs
        return [v.to(self.device, copy=True) if isinstance(v, torch.Tensor) else v for v in inputs]


def outputs_of(function: ir.Operation) -> list[Output]:
    """Return a function's outputs for :meth:`shardc.runtime.kernels.library.Library.kernel`."""
    in_place = in_place_of(function)
    block = function.regions[0].blocks[0]
    symbols, shapes = symbols_and_shapes(function)
    arguments, results = len(block.arguments) - len(symbols), list(block.operations)[-1].operation.operands
    made: list[Output] = []
    for number, value in enumerate(results):
        type_ = read_builtin(value.type)
        assert type_ is not None
        shape = shapes[arguments + number] if shapes else type_.shape
        made.append(in_place[number] if number in in_place else (tuple(hint(n) for n in shape), type_.dtype))
    return made
