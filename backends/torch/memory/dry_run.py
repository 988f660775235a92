"""Peak memory of a program, from a run on the meta device that counts live bytes.

The program itself makes, shares and frees each value. So the figure is exact for its tensors and its kernels'
workspaces. It lacks the temporaries of ATen, oneDNN and communication within a call.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from shardc.backends.eager.kern.libraries import MEANINGS
from shardc.backends.torch.memory.call_workspace import call_workspace_bytes
from shardc.backends.torch.memory.curve import Curve, Log
from shardc.backends.torch.memory.kinds import Alive, Block
from shardc.backends.torch.memory.record import Record
from shardc.backends.torch.memory.replay import Replay
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
    OpOverload,
    TorchDispatchMode,
    disable_current_modes,
    pytree,
    storage_address,
)

META = torch.device("meta")
FILE = "<dry run>"
CALLS = Replay()
"""Cache of calls, shared by all programs of a process."""

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
    around: Callable[[dict[str, Any]], AbstractContextManager[object]] = nullcontext,
    in_calls: bool = False,
) -> Peak:
    """Return the peak of the function ``entry`` of a program's ``text``, called with ``arguments()``.

    Arguments without other references are freed when the program frees them. ``workspace``: workspaces of
    kernels; default: none. ``around``: context of the run, called with the program's globals. ``in_calls``:
    count temporaries within ATen calls on a CPU. Raises PeakUnknown for an op that cannot run without data.
    """
    kernels = _Kernels(workspace or (lambda *_: 0))
    program: dict[str, Any] = {"kernel": kernels.kernel, "kernels": kernels.batch, "empty": _empty}
    exec(compile(text, FILE, "exec"), program)
    meter = _Meter(text.splitlines(), in_calls)
    # A compile may be active, whose fake tensor mode would keep tensors alive.
    with torch.no_grad(), disable_current_modes():
        given = list(arguments())
        meter.start(given)
        try:
            with meter, around(program):
                program[entry](*_emptied(given))
        except RuntimeError as error:
            raise PeakUnknown(problem=str(error).partition("\n")[0]) from error
    return meter.peak(kernels.kept_bytes)


def _emptied(given: list[object]) -> list[object]:
    """Return the arguments for one call, and clear the list, so that it refers to none of them."""
    copy = list(given)
    given.clear()
    return copy


class _Meter(TorchDispatchMode):
    """Counter of live bytes: from when memory is recorded until Python frees it."""

    def __init__(self, lines: list[str], in_calls: bool) -> None:
        super().__init__()
        self._in_calls = in_calls
        self._lines, self._replay, self._log = lines, CALLS, Log()
        self._meanings: dict[OpOverload, Callable[..., Any]] = {}
        self._live: dict[int, tuple[Block, weakref.ref[torch.UntypedStorage]]] = {}
        self._now = self._most = self._given = self._line = 0
        self._blocks: list[Block] = []
        self._made_by_then = 0
        """Number of blocks made at the peak."""

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        made = self._replay.call(self._meaning(func), args, kwargs or {})
        self._read(args)
        for value in made if isinstance(made, tuple | list) else (made,):
            self.note(value)
        if self._in_calls:
            self._use(call_workspace_bytes(str(func), args, made))
        return made

    def _use(self, size: int) -> None:
        """Count temporary memory within a call."""
        if size:
            workspace = _empty((size,), torch.uint8)
            self.note(workspace)
            del workspace

    def _meaning(self, func: OpOverload) -> Callable[..., Any]:
        """Return an ATen function for a library's operator, since libraries have no meta kernels."""
        if func not in self._meanings:
            self._meanings[func] = MEANINGS.get(str(func).removesuffix(".default"), func)
        return self._meanings[func]

    def note(self, value: object) -> None:
        """Count the memory of a tensor, if it is new."""
        if not isinstance(value, Tensor):
            return
        storage = value.untyped_storage()
        key = storage_address(storage)
        if key in self._live or not storage.nbytes():
            return
        block = Block(storage.nbytes(), self._position(), number=len(self._blocks))
        self._blocks.append(block)
        self._live[key] = (block, weakref.ref(storage, lambda _: self._gone(key)))
        self._log.add(block.size_bytes, block.made, id(block))
        self._now += block.size_bytes
        if self._now > self._most:
            self._most, self._line = self._now, block.made
            self._made_by_then = len(self._blocks)

    def _read(self, args: Sequence[Any]) -> None:
        """Record where the memory of a call's tensors is read."""
        line = self._position()
        for value in args:
            if isinstance(value, Tensor):
                known = self._live.get(storage_address(value.untyped_storage()))
                if known is not None:
                    known[0].read = line
            elif isinstance(value, tuple | list):
                self._read(value)

    def start(self, given: Sequence[object]) -> None:
        """Record the program's arguments."""
        for value in pytree.tree_leaves(given):
            self.note(value)
        self._given = self._now

    def peak(self, kept_bytes: int) -> Peak:
        """Return the peak. ``kept_bytes``: bytes of workspaces that are alive from the start."""
        self._log.hold(kept_bytes)
        record = Record(self._lines, self._log, self._blocks)
        blocks = record.living(self._made_by_then)
        largest = sorted(blocks, key=lambda block: (-block.size_bytes, block.made))[:LARGEST]
        return Peak(
            self._most + kept_bytes,
            self._given,
            self._text(self._line),
            self._source(self._line),
            tuple((block.size_bytes, self._text(block.made)) for block in largest),
            record.alive(self._made_by_then),
            record,
            kept_bytes,
            record.curve,
        )

    def _gone(self, key: int) -> None:
        block, _ = self._live.pop(key)
        block.outlived = len(self._blocks)
        self._log.add(-block.size_bytes, block.made, id(block))
        self._now -= block.size_bytes

    def _position(self) -> int:
        """Return the running line of the program, from 1; 0 outside of it."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != FILE:
            frame = frame.f_back
        return 0 if frame is None else frame.f_lineno

    def _text(self, line: int) -> str:
        return self._lines[line - 1].strip() if line else ""

    def _source(self, line: int) -> str:
        """Return the comment above a line with the user's source line."""
        above = (text.strip() for text in reversed(self._lines[:line]))
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
