"""``Net``: a hand-written net of the zoo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Net:
    """``build`` makes the module, ``batch`` a random batch of four samples; the module returns its loss."""

    build: Callable[[], nn.Module]
    batch: Callable[[], Any]
