"""How much memory a program needs: it is run on the meta device, and what lives is counted.

The program itself says when each value is made, shared and freed, so that the figure is that of its tensors,
to the byte, and of its kernels' workspaces. Not in it: what ATen, oneDNN and communication use inside of a
call.
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
"""The same in each program of a process."""

Workspace = Callable[[str, Sequence[int]], int]
"""Bytes of a kernel's workspace, by its name and the integers that its symbolic sizes are in."""


@dataclass(frozen=True)
class Peak:
    """The most memory that a program's tensors take at once.

    ``size_bytes`` are all of them, ``given_bytes`` what the arguments take at the start. ``line`` is the
    program's where it is reached, ``where`` the user's source line, empty if there is none; ``held`` the
    largest tensors at that time, as bytes and the line that made each (empty for an argument). ``alive``:
    what the program itself made that lives at the peak, by kind and line. ``record``: all that was made.
    ``kept_bytes`` of ``size_bytes`` are workspaces of kernels that stay between steps. ``make_curve``: the
    memory over time, which most who ask for a peak do not read.
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
        """The memory over time."""
        return self.make_curve()


def dry_run(
    text: str,
    entry: str,
    arguments: Callable[[], Sequence[object]],
    workspace: Workspace | None = None,
    around: Callable[[dict[str, Any]], AbstractContextManager[object]] = nullcontext,
    in_calls: bool = False,
) -> Peak:
    """The peak of the function ``entry`` of a program's ``text``, called with what ``arguments`` makes.

    Arguments that nobody else refers to die when the program has freed them. Without ``workspace`` kernels
    have none. ``around``: a context of the run, which is given the program's globals. ``in_calls``:
    count what calls of ATen take inside of them on a CPU. Raises PeakUnknown for an op that does not run
    without data.
    """
    kernels = _Kernels(workspace or (lambda *_: 0))
    program: dict[str, Any] = {"kernel": kernels.kernel, "kernels": kernels.batch, "empty": _empty}
    exec(compile(text, FILE, "exec"), program)
    meter = _Meter(text.splitlines(), in_calls)
    # a compile goes on under fake tensors, which keep what they meet
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
    """The arguments for one call, after which the list refers to none of them."""
    copy = list(given)
    given.clear()
    return copy


class _Meter(TorchDispatchMode):
    """Counts the bytes of the memory that lives, from when it is noted until Python gives it up."""

    def __init__(self, lines: list[str], in_calls: bool) -> None:
        super().__init__()
        self._in_calls = in_calls
        self._lines, self._replay, self._log = lines, CALLS, Log()
        self._meanings: dict[OpOverload, Callable[..., Any]] = {}
        self._live: dict[int, tuple[Block, weakref.ref[torch.UntypedStorage]]] = {}
        self._now = self._most = self._given = self._line = 0
        self._blocks: list[Block] = []
        self._made_by_then = 0
        """How many blocks had been made when most memory lived."""

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
        """Count memory that a call has inside of it, beside its results."""
        if size:
            workspace = _empty((size,), torch.uint8)
            self.note(workspace)
            del workspace

    def _meaning(self, func: OpOverload) -> Callable[..., Any]:
        """Libraries have no kernels for tensors without data."""
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
        """Note where the memory of a call's tensors is read."""
        line = self._position()
        for value in args:
            if isinstance(value, Tensor):
                known = self._live.get(storage_address(value.untyped_storage()))
                if known is not None:
                    known[0].read = line
            elif isinstance(value, tuple | list):
                self._read(value)

    def start(self, given: Sequence[object]) -> None:
        """The program begins with these arguments."""
        for value in pytree.tree_leaves(given):
            self.note(value)
        self._given = self._now

    def peak(self, kept_bytes: int) -> Peak:
        """``kept_bytes``: of workspaces, which are there from the start."""
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
        """The line of the program that runs, from 1; 0 outside of it."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != FILE:
            frame = frame.f_back
        return 0 if frame is None else frame.f_lineno

    def _text(self, line: int) -> str:
        return self._lines[line - 1].strip() if line else ""

    def _source(self, line: int) -> str:
        """The comment above a line that says where in the user's code it is from."""
        above = (text.strip() for text in reversed(self._lines[:line]))
        comments = (t.removeprefix("# ") for t in above if t.startswith("# ") and not t.startswith("# --"))
        return next(comments, "")


LARGEST = 8
"""How many tensors a peak names."""


def _empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=META)


class _Kernels:
    """:class:`shardc.runtime.kernels.library.Library` without kernels: results, and memory to work in."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.kept_bytes = 0
        """What a thread keeps for later calls, and so has from the first step on."""

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
    """``"n0 * 64 + n1"`` in numbers."""
    factors = (
        [numbers[int(f[1:])] if f.startswith("n") else int(f) for f in term.split(" * ")]
        for term in text.split(" + ")
    )
    return sum(map(prod, factors))
