"""Peak memory of a program, from a run on the meta device that counts live bytes.

The program itself makes, shares and frees each value. So the figure is exact for its tensors and its kernels'
workspaces. It lacks the temporaries of ATen, oneDNN and communication within a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from shardc.backends.torch.memory.curve import Curve
from shardc.backends.torch.memory.kinds import Alive
from shardc.backends.torch.memory.meter import FILE, Meter
from shardc.backends.torch.memory.record import Record
from shardc.backends.torch.memory.repeated import Repeated
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.runtime.kernels.kernel_call import (
    KEPT_WORKSPACE_BYTES,
    Batch,
    Checks,
    Kernel,
    Member,
    Output,
    Outputs,
)
from shardc.runtime.torch_private import (
    disable_current_modes,
)

META = torch.device("meta")

Workspace = Callable[[str, Sequence[int]], int]
"""Function (kernel's name, integers of its symbolic sizes) -> bytes of its workspace."""


@dataclass(frozen=True)
class Peak:
    """Peak memory of a program's tensors.

    ``size_bytes``: the peak. ``given_bytes``: bytes of arguments at the start. ``line``: the program's line
    at the peak. ``where``: the user's source line there; empty if unknown. ``held``: the largest tensors at
    the
    peak, as bytes and the line that made each (empty for an argument). ``alive``: the program's own tensors
    at the peak, by kind and line. ``record``: all allocations. ``kept_bytes``: the part of ``size_bytes``
    that is workspace of kernels, kept between steps. ``make_curve``: computes the memory over time on demand.
    """

    size_bytes: int
    given_bytes: int
    line: str
    where: str
    held: tuple[tuple[int, str], ...]
    alive: tuple[Alive, ...] = field(default=(), repr=False)
    record: Record = field(default_factory=Record, repr=False, compare=False)
    kept_bytes: int = 0
    make_curve: Callable[[], Curve] = field(default=Curve, repr=False, compare=False)

    @cached_property
    def curve(self) -> Curve:
        """Memory over time."""
        return self.make_curve()


def dry_run(
    text: str,
    entry: str,
    arguments: Callable[[], Sequence[object]],
    workspace: Workspace | None = None,
    around: Callable[[dict[str, Any]], AbstractContextManager[object]] | None = None,
    in_calls: bool = False,
) -> Peak:
    """Return the peak of the function ``entry`` of a program's ``text``, called with ``arguments()``.

    Arguments without other references are freed when the program frees them. ``workspace``: workspaces of
    kernels; default: none. ``around``: context of the run, called with the program's globals, in which every
    call runs; without it, equal calls of a pipeline's stages run once. ``in_calls``: count temporaries within
    ATen calls on a CPU. Raises PeakUnknown for an op that cannot run without data.
    """
    kernels = _Kernels(workspace or (lambda *_: 0))
    program: dict[str, Any] = {"kernel": kernels.kernel, "kernels": kernels.batch, "empty": _empty}
    exec(_compiled(text), program)
    meter = Meter(in_calls)
    if around is None:
        Repeated(meter.ledger).replace(program)
    # A compile may be active, whose fake tensor mode would keep tensors alive.
    with torch.no_grad(), disable_current_modes():
        given = list(arguments())
        meter.start(given)
        try:
            with meter, nullcontext() if around is None else around(program):
                program[entry](*_emptied(given))
        except RuntimeError as error:
            raise PeakUnknown(problem=str(error).partition("\n")[0]) from error
    return _peak(meter, text.splitlines(), kernels.kept_bytes)


@lru_cache(maxsize=1)
def _compiled(text: str) -> CodeType:
    """Return a program's code; the last one is kept for the other ranks of a pipeline."""
    return compile(text, FILE, "exec")


def _emptied(given: list[object]) -> list[object]:
    """Return the arguments for one call, and clear the list, so that it refers to none of them."""
    copy = list(given)
    given.clear()
    return copy


def _peak(meter: Meter, program: Sequence[str], kept_bytes: int) -> Peak:
    """Return the peak of a run. ``kept_bytes``: bytes of workspaces that are alive from the start."""
    ledger = meter.ledger
    ledger.log.hold(kept_bytes)
    record = Record(program, ledger.log, ledger.blocks)
    blocks = record.living(ledger.made_by_then)
    largest = sorted(blocks, key=lambda block: (-block.size_bytes, block.made))[:LARGEST]

    def text(line: int) -> str:
        return program[line - 1].strip() if line else ""

    return Peak(
        ledger.most + kept_bytes,
        meter.given_bytes,
        text(ledger.line),
        _source(program, ledger.line),
        tuple((block.size_bytes, text(block.made)) for block in largest),
        record.alive(ledger.made_by_then),
        record,
        kept_bytes,
        record.curve,
    )


def _source(program: Sequence[str], line: int) -> str:
    """Return the comment above a line with the user's source line."""
    above = (text.strip() for text in reversed(program[:line]))
    comments = (t.removeprefix("# ") for t in above if t.startswith("# ") and not t.startswith("# --"))
    return next(comments, "")


LARGEST = 8
"""Number of tensors in ``Peak.held``."""


def _empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=META)


class _Kernels:
    """Stand-in for :class:`shardc.runtime.kernels.library.Library` that only allocates memory."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.kept_bytes = 0
        """Workspace that a thread keeps for later calls, and so has from the first step on."""

    def kernel(
        self, name: str, outputs: Outputs, size: int | None = None, checks: Checks | None = None
    ) -> Kernel:
        def call(*given: Tensor | int) -> tuple[Tensor, ...]:
            numbers = [n for n in given if not isinstance(n, Tensor)]
            made = tuple(_result(output, given, numbers) for output in outputs)
            self._work(self._workspace(name, numbers))
            return made

        return call

    def batch(self, name: str, members: Sequence[Member]) -> Batch:
        calls = [self.kernel(name, outputs) for _, outputs in members]
        return lambda *given: [call(*tensors) for call, tensors in zip(calls, given, strict=True)]

    def _work(self, size_bytes: int) -> None:
        """A thread keeps a small workspace for later calls (:mod:`shardc.runtime.kernels.kernel_call`)."""
        if size_bytes > KEPT_WORKSPACE_BYTES:
            _empty((size_bytes,), torch.uint8)
        else:
            self.kept_bytes = max(self.kept_bytes, size_bytes)


def _result(output: Output, given: Sequence[Tensor | int], numbers: Sequence[int]) -> Tensor:
    if isinstance(output, int):
        tensor = given[output]
        assert isinstance(tensor, Tensor)
        return tensor if tensor.is_contiguous() else tensor.contiguous()
    shape, dtype = output
    return _empty([n if isinstance(n, int) else _size(n, numbers) for n in shape], dtype)


def _size(text: str, numbers: Sequence[int]) -> int:
    """Evaluate a size such as ``"n0 * 64 + n1"``."""
    factors = (
        [numbers[int(f[1:])] if f.startswith("n") else int(f) for f in term.split(" * ")]
        for term in text.split(" + ")
    )
    return sum(map(prod, factors))
