"""The step that runs where rows have too little room at their experts: the same without a capacity."""

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
    """Makes that step when it is first needed; false if ``options`` do not ask for one.

    ``options`` are those of programs that must have room: the step's own if it stops where rows have none.
    """

    def __init__(self, options: StepOptions, compile_for: Callable[[StepOptions], S]) -> None:
        self._is_wanted = options.parallelism.on_overflow == "rerun"
        given = options.parallelism
        capacity = None if self._is_wanted else given.expert_capacity
        self.options = replace(options, parallelism=replace(given, expert_capacity=capacity))
        self._compile_for = compile_for
        self.made: dict[str, S] = {}
        """The step if it is there, by what it is."""

    def __bool__(self) -> bool:
        return self._is_wanted

    def step(self) -> S:
        """The step, compiled the first time, with a warning that says what it took."""
        if NAME not in self.made:
            started = time.perf_counter()
            self.made[NAME] = self._compile_for(self.options)
            took = f"{time.perf_counter() - started:.1f} s"
            text = f"rows had too little room at their experts: compiled a program with room for all, {took}"
            warn_at("RoomCompiled", text, ProgramCompiledWarning, caller_line()[0])
        return self.made[NAME]
