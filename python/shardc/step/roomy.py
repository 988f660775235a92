"""Fallback step without expert capacity, run when rows do not fit at their experts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar

from shardc.frontend.importing.recorder import caller_line
from shardc.options.step import StepOptions
from shardc.runtime.report.messages import ProgramCompiledWarning, warn_at

NAME = "room for all rows"
S = TypeVar("S")


class Roomy(Generic[S]):
    """Compiler of the fallback step, at its first use. False if ``options`` do not ask for one.

    Attribute ``options``: the options of programs without a capacity; unchanged if the step stops when rows
    do not fit.
    """

    def __init__(self, options: StepOptions, compile_for: Callable[[StepOptions], S]) -> None:
        self._is_wanted = options.parallelism.on_overflow == "rerun"
        given = options.parallelism
        capacity = None if self._is_wanted else given.expert_capacity
        self.options = replace(options, parallelism=replace(given, expert_capacity=capacity))
        self._compile_for = compile_for
        self.made: dict[str, S] = {}
        """Fallback step by its name; empty until it is compiled."""

    def __bool__(self) -> bool:
        return self._is_wanted

    def step(self) -> S:
        """Return the step; the first call compiles it, and warns with the time that it took."""
        if NAME not in self.made:
            started = time.perf_counter()
            self.made[NAME] = self._compile_for(self.options)
            took = f"{time.perf_counter() - started:.1f} s"
            text = f"experts had too little room for their rows: compiled a program with room for all, {took}"
            warn_at("RoomCompiled", text, ProgramCompiledWarning, caller_line()[0])
        return self.made[NAME]
