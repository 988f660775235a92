"""Stamps every node of a trace, as it is made, with its phase and the user's source lines.

Walking Python frames costs a tenth of what formatted stack traces cost. Nodes of the backward take the lines
of the forward op whose gradient they are: autograd numbers its nodes, and a traced node notes the number
current then.
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
"""The phase of what a backward makes again of the forward: activation checkpointing does."""
PHASE, FRAMES = "shardc_phase", "shardc_frames"

# File, line; the innermost first.
Frames = tuple[tuple[str, int], ...]

TOLD_EVERY = 64
"""Nodes between two counts of the progress."""

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
# Decorators and dispatch inside transformers: no line of the model.
_WRAPPERS = (
    os.path.join("transformers", "utils", ""),
    os.path.join("transformers", "modeling_layers.py"),
    os.path.join("transformers", "modeling_utils.py"),
)


class NodeRecorder:
    """Current phase and source of the nodes being made; ``label`` stands for lines in the optimizer phase.

    With ``watch``, the newest node stays the first at which ``watch()`` was true. ``calls``: of modules that
    are noted on nodes.
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
        """Takes over the tracer's node creation."""
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
        """Lines of user code that are being run, from the innermost outwards."""
        return user_frames(sys._getframe(1), self._stop_file)

    def follow(self, lines: Frames) -> None:
        """Goes on as if the newest node had these lines."""
        self._last = lines

    @property
    def line(self) -> str:
        """``file:line`` of the op that has made the newest node."""
        file, line = (self._watched or self._last)[0]
        return f"{file}:{line}"

    def _phase(self) -> str:
        """A backward makes gradients without recording; what it makes again of the forward it records."""
        again = self.phase == BACKWARD and torch.is_grad_enabled() and current_autograd_node() is not None
        return RECOMPUTE if again else self.phase

    def _frames(self) -> Frames:
        found = user_frames(sys._getframe(2), self._stop_file)
        if self.phase == OPTIMIZER:
            return found or self.label or self._last
        if self.phase == FORWARD or found:
            self._last = found or self._last
            # The node that autograd made for the op that is being traced has the last number given out.
            self._by_sequence.setdefault(sequence_number() - 1, self._last)
        elif (node := current_autograd_node()) is not None:
            self._last = self._by_sequence.get(sequence_number_of(node), self._last)
        return self._last


def user_frames(frame: FrameType | None, stop_file: str) -> Frames:
    """Lines of user code from ``frame`` outwards, up to the first frame of ``stop_file``."""
    found = []
    while frame is not None and frame.f_code.co_filename != stop_file:
        if _is_user(frame.f_code.co_filename):
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


_caller: ContextVar[Frames | None] = ContextVar("shardc_caller", default=None)


@contextmanager
def called_from(file: str, line: int) -> Iterator[None]:
    """Traces inside count as asked for by this line: a script that the command line reads calls nothing."""
    token = _caller.set(((file, line),))
    try:
        yield
    finally:
        _caller.reset(token)


def caller_line() -> Frames:
    """The line outside shardc that asked for the trace."""
    given = _caller.get()
    if given is not None:
        return given
    for frame, line in walk_stack(sys._getframe(1)):
        name = frame.f_code.co_filename
        if _is_user(name) and not name.startswith(_PACKAGE):
            return ((name, line),)
    return (("<capture_step>", 0),)


def raising_line(traceback: TracebackType | None) -> str | None:
    """``file:line`` of the innermost user frame in a traceback, None if it has none."""
    lines = ((frame.f_code.co_filename, line) for frame, line in walk_tb(traceback))
    found = [f"{name}:{line}" for name, line in lines if _is_user(name)]
    return found[-1] if found else None


@cache
def _is_user(filename: str) -> bool:
    return not filename.startswith(_INTERNAL) and not any(part in filename for part in _WRAPPERS)


# Lines in the stack traces that PyTorch's tracers leave on FX nodes.


def frames_of(meta: Mapping[str, Any]) -> Frames:
    """The user's lines that made a node, by its meta data, the innermost first; PyTorch's own if all are."""
    found = [(name, int(line)) for name, line in _FRAME.findall(meta.get("stack_trace") or "")][::-1]
    return tuple(f for f in found if not f[0].startswith(_TORCH)) or tuple(found) or UNKNOWN


def line_of(meta: Mapping[str, Any]) -> str | None:
    """``file:line`` of the innermost of the user's lines, by the meta data of a node."""
    file, line = frames_of(meta)[0]
    return f"{file}:{line}" if line else None
