"""Counter of the memory of what a program makes on the meta device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from torch import Tensor

from shardc.backends.eager.kern.libraries import MEANINGS
from shardc.backends.torch.memory.call_workspace import call_workspace_bytes
from shardc.backends.torch.memory.ledger import Ledger
from shardc.backends.torch.memory.replay import Replay
from shardc.runtime.source import line_of
from shardc.runtime.torch_private import OpOverload, TorchDispatchMode, pytree

FILE = "<dry run>"
"""File name of programs that are run to count their memory."""
CALLS = Replay()
"""Cache of calls, shared by all programs of a process."""


class Meter(TorchDispatchMode):
    """Writes the memory of what a program makes and frees into a ledger.

    ``in_calls``: count temporaries within ATen calls on a CPU. ``given_bytes``: bytes of the arguments.
    """

    def __init__(self, in_calls: bool) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.given_bytes = 0
        self._in_calls = in_calls
        self._meanings: dict[OpOverload, Callable[..., Any]] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> object:
        made = CALLS.call(self._meaning(func), args, kwargs or {})
        self._read(args)
        for value in made if isinstance(made, tuple | list) else (made,):
            self.note(value)
        if self._in_calls:
            self._use(call_workspace_bytes(str(func), args, made))
        return made

    def _use(self, size_bytes: int) -> None:
        """Count temporary memory within a call."""
        if size_bytes:
            self.ledger.free(self.ledger.make(size_bytes, _position()))

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
        if storage.nbytes() and self.ledger.block(storage) is None:
            self.ledger.keep(storage, self.ledger.make(storage.nbytes(), _position()))

    def _read(self, args: Sequence[Any]) -> None:
        """Record where the memory of a call's tensors is read."""
        line = _position()
        for value in args:
            if isinstance(value, Tensor):
                block = self.ledger.block(value.untyped_storage())
                if block is not None:
                    block.read = line
            elif isinstance(value, tuple | list):
                self._read(value)

    def start(self, given: Sequence[object]) -> None:
        """Record the program's arguments."""
        for value in pytree.tree_leaves(given):
            self.note(value)
        self.given_bytes = self.ledger.now


def _position() -> int:
    """Return the running line of the program, from 1; 0 outside of it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != FILE:
        frame = frame.f_back
    return 0 if frame is None else line_of(frame)
