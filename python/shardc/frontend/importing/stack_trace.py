"""The user's lines in the stack traces that PyTorch's tracers leave on FX nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from shardc.frontend.importing.recorder import Frames

UNKNOWN: Frames = (("<unknown>", 0),)

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = os.path.dirname(torch.__file__) + os.sep


def frames_of(node: Node) -> Frames:
    """File and line of the user's code that made a node, the innermost first; PyTorch's own if all are."""
    return _frames_in(node.meta)


def line_of(meta: Mapping[str, Any]) -> str | None:
    """``file:line`` of the innermost of the user's lines, by the meta data of a node."""
    file, line = _frames_in(meta)[0]
    return f"{file}:{line}" if line else None


def _frames_in(meta: Mapping[str, Any]) -> Frames:
    found = [(name, int(line)) for name, line in _FRAME.findall(meta.get("stack_trace") or "")][::-1]
    return tuple(f for f in found if not f[0].startswith(_TORCH)) or tuple(found) or UNKNOWN
