"""Choice of recomputation for a memory budget: the first rung of a ladder whose planned peak fits.

Each rung of the ladder recomputes more and so needs less memory than the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import torch

from shardc.backends.torch.memory.dry_run import Peak
from shardc.compiler.memory import step_peak
from shardc.diagnostics.base import Remark
from shardc.diagnostics.passes.recompute import BudgetTooSmall
from shardc.diagnostics.text import size_text
from shardc.passes.budget.integer_program import BudgetProgram, Solution
from shardc.passes.budget.read_graph import Choices
from shardc.runtime.report import progress
from shardc.step.shard import Compiled

T = TypeVar("T")
RUNGS = 32
"""Number of rungs between the peak that recomputes nothing and the least peak, as the graph predicts them."""


@dataclass(frozen=True)
class Made(Generic[T]):
    """Compiled step with its planned peak."""

    step: T
    peak: Peak

    @property
    def size_bytes(self) -> int:
        return self.peak.size_bytes


@dataclass(frozen=True)
class Within(Generic[T]):
    """Chosen step, with a remark for the report if anything is recomputed."""

    step: T
    remark: Remark | None = None


class Ladder(Generic[T]):
    """Rungs of one step, each compiled when first asked for.

    ``make``: compiles the step that recomputes the forward's ops with the given numbers. ``choices``: the ops
    to choose from. An integer program chooses ops for a rung's target, which it predicts from the graph; what
    counts is the planned peak of the compiled step.
    """

    def __init__(self, make: Callable[[frozenset[int]], Made[T]], choices: Callable[[], Choices]) -> None:
        self._make, self._read = make, choices
        self._made: dict[frozenset[int], Made[T]] = {}
        """Recomputed ops -> step. Neighbouring rungs may share a step."""
        self._solutions: dict[int, Solution] = {}

    def within(self, budget_bytes: int) -> Within[T]:
        """Return the step with the least recomputation whose planned peak is at most ``budget_bytes``.

        Rungs are bisected. A rung whose peak is not between its neighbours' counts as the nearer neighbour,
        so that a larger budget never gets a lower peak. Raises BudgetTooSmall, PeakUnknown.
        """
        none = self._step(frozenset())
        if none.size_bytes <= budget_bytes:
            return Within(none.step)
        high = self._rung(RUNGS)
        if high.size_bytes > budget_bytes:
            raise _too_small(budget_bytes, min(none, high, key=lambda made: made.size_bytes))
        first, last, chosen = 0, RUNGS, RUNGS
        while last - first > 1:
            middle = (first + last) // 2
            progress.step(f"memory budget: part {middle} of {RUNGS}")
            made = self._rung(middle)
            if made.size_bytes > budget_bytes:
                first = middle
            elif made.size_bytes < high.size_bytes:
                last = middle
            else:
                last, high, chosen = middle, made, middle
        return Within(high.step, self._remark(self._solution(chosen), budget_bytes, none, high))

    def peak(self, step: T) -> int:
        """Return the planned peak of a step of this ladder, in bytes."""
        return next(made.size_bytes for made in self._made.values() if made.step is step)

    @cached_property
    def _choices(self) -> Choices:
        return self._read()

    @cached_property
    def _program(self) -> BudgetProgram:
        return BudgetProgram(self._choices.graph)

    def _step(self, again: frozenset[int]) -> Made[T]:
        if again not in self._made:
            self._made[again] = self._make(again)
        return self._made[again]

    def _rung(self, number: int) -> Made[T]:
        return self._step(self._choices.numbers(self._solution(number).again))

    def _solution(self, number: int) -> Solution:
        if number not in self._solutions:
            self._solutions[number] = self._solve(number)
        return self._solutions[number]

    def _solve(self, number: int) -> Solution:
        if number == RUNGS:
            return self._program.least()
        most, least = self._program.kept().peak_bytes, self._solution(RUNGS).peak_bytes
        return self._program.within(most - (most - least) * number / RUNGS)

    def _remark(self, found: Solution, budget_bytes: int, none: Made[T], chosen: Made[T]) -> Remark:
        """Return the remark on what is recomputed, its cost and the memory it saves."""
        ops = self._choices.graph.ops
        work = sum(ops[op].work_bytes for op in found.again)
        share = work / (sum(op.work_bytes for op in ops.values()) or 1.0)
        text = (
            f"to stay within {size_text(budget_bytes)}, backward recomputes {len(found.again)} of the "
            f"forward's {len(ops)} ops, {share:.1%} of its work: the peak of a device is "
            f"{size_text(chosen.size_bytes)}, and {size_text(none.size_bytes)} without recomputation"
        )
        return Remark("Recomputed", text)


def _too_small(budget_bytes: int, least: Made[T]) -> BudgetTooSmall:
    size, given = least.size_bytes, least.peak.given_bytes
    return BudgetTooSmall(budget=budget_bytes, least=size, given=given, where="memory_budget=")


def planned_peak(compiled: Compiled) -> Peak:
    """Return a compiled step's planned peak; on a host, with ATen calls' own temporaries.

    Raises PeakUnknown.
    """
    target = compiled.target
    on_host = target.runs_on_host if target is not None else not torch.cuda.is_available()
    library = None
    if target is not None and on_host and compiled.library is not None:
        library = target.load(compiled.library)
    return step_peak(compiled.program, library, in_calls=on_host)
