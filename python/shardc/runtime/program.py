"""The emitted program of a rank: its function, and the axes that its collectives span."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from .mesh import Axes


@dataclass(frozen=True)
class Program:
    """``step(rank, *arguments)`` returns the results that replace no argument, the loss first."""

    step: Callable[..., tuple[Any, ...]]
    groups: tuple[Axes, ...]

    @staticmethod
    def load(path: Path) -> Program:
        """From a file; Python keeps it compiled beside it, since a big model's takes seconds to compile."""
        module = ModuleType("shardc_program")
        module.__file__ = str(path)
        SourceFileLoader("shardc_program", str(path)).exec_module(module)
        return Program(module.step, tuple(module.GROUPS))

    @staticmethod
    def of(text: str) -> Program:
        """From the program's text."""
        names: dict[str, Any] = {}
        exec(compile(text, "<program>", "exec"), names)
        return Program(names["step"], tuple(names["GROUPS"]))
