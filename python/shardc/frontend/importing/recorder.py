"""Stamps every node of a trace, when it is made, with its phase and the user's source lines.

Walking Python frames costs a tenth of formatting stack traces. Nodes of the backward get the lines of the
forward op that they differentiate: autograd numbers its nodes, and each traced node records the current
number.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from traceback import walk_stack, walk_tb
from types import FrameType, TracebackType
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import PythonKeyTracer

from shardc.frontend.importing.module_calls import MODULE, ModuleCalls
from shardc.runtime.report import progress
from shardc.runtime.torch_private import current_autograd_node, sequence_number, sequence_number_of

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
RECOMPUTE = "recompute"
"""Phase of forward ops that backward runs again, as in activation checkpointing."""
PHASE, FRAMES = "shardc_phase", "shardc_frames"

# File and line, the innermost first.
Frames = tuple[tuple[str, int], ...]

TOLD_EVERY = 64
"""Nodes between two updates of the progress display."""

UNKNOWN: Frames = (("<unknown>", 0),)

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')

_TORCH = os.path.dirname(torch.__file__) + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_INTERNAL = (
    _TORCH,
    os.path.join(_PACKAGE, "frontend") + os.sep,
    os.path.join(_PACKAGE, "runtime") + os.sep,
    os.path.dirname(os.__file__) + os.sep + "contextlib.py",
    os.path.dirname(os.__file__) + os.sep + "functools.py",
    "<frozen",
    "<string>",
    "<eval_with_key>",
)
# Decorators and dispatch inside transformers, which are no lines of the model.
_WRAPPERS = (
    os.path.join("transformers", "utils", ""),
    os.path.join("transformers", "modeling_layers.py"),
    os.path.join("transformers", "modeling_utils.py"),
)


class NodeRecorder:
    """Phase and source lines of the nodes being made. ``label`` replaces lines in the optimizer phase.

    With ``watch``, the newest node stays the first one at which ``watch()`` was true. ``calls``: module calls
    to record on nodes.
    """

    def __init__(
        self,
        stop_file: str,
        fallback: Frames,
        watch: Callable[[], bool] | None = None,
        calls: ModuleCalls | None = None,
    ) -> None:
        self.phase = FORWARD
        self.label: Frames | None = None
        self._stop_file, self._watch = stop_file, watch
        self._watched: Frames | None = None
        self._last = fallback
        self.calls = calls
        self._by_sequence: dict[int, Frames] = {}
        self._made = 0

    def attach(self, tracer: PythonKeyTracer) -> None:
        """Wrap the tracer's node creation."""
        create = tracer.create_node

        def create_node(*args: Any, **kwargs: Any) -> torch.fx.Node:
            node = create(*args, **kwargs)
            self._made += 1
            if self._made % TOLD_EVERY == 0:
                progress.step(f"{self.phase}, ops", self._made)
            node.meta[PHASE] = self._phase()
            node.meta[FRAMES] = self._frames()
            if self.calls is not None and self.calls.current:
                node.meta[MODULE] = self.calls.current
            if self._watch is not None and self._watched is None and self._watch():
                self._watched = node.meta[FRAMES]
            return node

        tracer.create_node = create_node  # type: ignore[method-assign]

    def user_lines(self) -> Frames:
        """Return the running lines of user code, the innermost first."""
        return user_frames(sys._getframe(1), self._stop_file)

    def follow(self, lines: Frames) -> None:
        """Continue as if the newest node had these lines."""
        self._last = lines

    @property
    def line(self) -> str:
        """Return ``file:line`` of the op that made the newest node."""
        file, line = (self._watched or self._last)[0]
        return f"{file}:{line}"

    def _phase(self) -> str:
        """Return the phase.

        A backward makes gradients without recording them, but records recomputed forward ops.
        """
        again = self.phase == BACKWARD and torch.is_grad_enabled() and current_autograd_node() is not None
        return RECOMPUTE if again else self.phase

    def _frames(self) -> Frames:
        found = user_frames(sys._getframe(2), self._stop_file)
        if self.phase == OPTIMIZER:
            return found or self.label or self._last
        if self.phase == FORWARD or found:
            self._last = found or self._last
            # Autograd's node for the op that is being traced has the last number given out.
            self._by_sequence.setdefault(sequence_number() - 1, self._last)
        elif (node := current_autograd_node()) is not None:
            self._last = self._by_sequence.get(sequence_number_of(node), self._last)
        return self._last


def user_frames(frame: FrameType | None, stop_file: str) -> Frames:
    """Return lines of user code from ``frame`` outwards, up to the first frame of ``stop_file``."""
    found = []
    while frame is not None and frame.f_code.co_filename != stop_file:
        if _is_user(frame.f_code.co_filename):
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


_caller: ContextVar[Frames | None] = ContextVar("shardc_caller", default=None)


@contextmanager
def called_from(file: str, line: int) -> Iterator[None]:
    """Attribute traces inside the block to this line; a script for the command line calls nothing."""
    token = _caller.set(((file, line),))
    try:
        yield
    finally:
        _caller.reset(token)


def caller_line() -> Frames:
    """Return the line outside shardc that requested the trace."""
    given = _caller.get()
    if given is not None:
        return given
    for frame, line in walk_stack(sys._getframe(1)):
        name = frame.f_code.co_filename
        if _is_user(name) and not name.startswith(_PACKAGE):
            return ((name, line),)
    return (("<capture_step>", 0),)


def raising_line(traceback: TracebackType | None) -> str | None:
    """Return ``file:line`` of the innermost user frame in a traceback; None if it has none."""
    lines = ((frame.f_code.co_filename, line) for frame, line in walk_tb(traceback))
    found = [f"{name}:{line}" for name, line in lines if _is_user(name)]
    return found[-1] if found else None


@cache
def _is_user(filename: str) -> bool:
    return not filename.startswith(_INTERNAL) and not any(part in filename for part in _WRAPPERS)


# Lines from the stack traces that PyTorch's tracers leave on FX nodes.


def frames_of(meta: Mapping[str, Any]) -> Frames:
    """Return the user's lines in a node's metadata, the innermost first; PyTorch's if there are no others."""
    found = [(name, int(line)) for name, line in _FRAME.findall(meta.get("stack_trace") or "")][::-1]
    return tuple(f for f in found if not f[0].startswith(_TORCH)) or tuple(found) or UNKNOWN


def line_of(meta: Mapping[str, Any]) -> str | None:
    """Return ``file:line`` of the innermost user line in a node's metadata."""
    file, line = frames_of(meta)[0]
    return f"{file}:{line}" if line else None
