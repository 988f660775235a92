"""The user's lines in the stack traces that PyTorch's tracers leave on FX nodes."""

from __future__ import annotations

import os
import re

import torch
from torch.fx import Node

from shardc.frontend.importing.recorder import Frames

UNKNOWN: Frames = (("<unknown>", 0),)

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = os.path.dirname(torch.__file__) + os.sep


def frames_of(node: Node) -> Frames:
    """File and line of the user's code that made a node, the innermost first; PyTorch's own only
    if all are.
    """
    return frames_in(node.meta.get("stack_trace") or "")


def frames_in(stack: str) -> Frames:
    """The same of a stack trace."""
    found = [(name, int(line)) for name, line in _FRAME.findall(stack)][::-1]
    return tuple(f for f in found if not f[0].startswith(_TORCH)) or tuple(found) or UNKNOWN


def line_of(node: Node) -> str | None:
    """``file:line`` of the innermost of them."""
    return line_in(node.meta.get("stack_trace") or "")


def line_in(stack: str) -> str | None:
    """The same of a stack trace."""
    file, line = frames_in(stack)[0]
    return f"{file}:{line}" if line else None
