"""Operators that are traced as other operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from shardc.runtime.torch_private import OpOverload

Table: TypeAlias = dict[OpOverload, Callable[..., object]]
"""Decompositions by op: functions of the op's arguments."""
