"""Versions of a question's model with fewer equal layers, each captured once."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from fractions import Fraction

import torch

from shardc.diagnostics.base import ShardcError
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.constrained import Wanted
from shardc.frontend.step.spec import Capture
from shardc.options.parallelism import Parallelism
from shardc.passes.manager.program import copy_module, find_function
from shardc.passes.recompute.torch_recompute import drop_modules
from shardc.passes.search.fold import More, Omitted
from shardc.passes.search.repetitions import STANDING
from shardc.planning.depth.few import MORE
from shardc.planning.depth.runs import runs_of
from shardc.planning.depth.shallow import Periods, shallow
from shardc.planning.question import Question
from shardc.runtime.report.logs import TIMING
from shardc.step.micro_batches import cut_micro_batches
from shardc.step.modules.constraints import layouts_of
from shardc.step.modules.recomputed import recomputed, repeated_layers

Counts = tuple[tuple[int, ...], ...]
_Key = tuple[Counts, tuple[str, ...], tuple[tuple[str, Wanted], ...]]
"""Periods of equal layers, the modules that the capture notes, and the modules with constrained outputs."""


class Versions:
    """Captures of a question's step, for each number of equal layers that somebody asked for.

    ``runs``: the model's stretches of equal layers; empty if costs are not affine in their number.
    ``stands``: whether searches may look at a few of the equal layers.
    """

    def __init__(self, question: Question, autocast: torch.dtype | None) -> None:
        self.question, self._autocast = question, autocast
        self.runs = runs_of(question.model)
        self.stands = True
        self._captures: dict[_Key, Capture] = {}
        self._smaller: dict[Fraction, Versions] = {}

    @property
    def whole(self) -> list[list[int]]:
        """The whole model's number of periods in each stretch."""
        return [[stretch.count for stretch in run.stretches] for run in self.runs]

    def even(self, count: int) -> list[list[int]]:
        """Return as many periods of each stretch."""
        return [[count] * len(run.stretches) for run in self.runs]

    def deepened(self, count: int, run: int, stretch: int) -> list[list[int]]:
        """Return as many periods of each stretch, but :data:`MORE` of one."""
        periods = self.even(count)
        periods[run][stretch] = MORE
        return periods

    def searched(self) -> tuple[Periods, More]:
        """Return the layers that a search looks at, and the number of equal layers left out."""
        periods, more = self.whole, list[Omitted]()
        if not self.stands:
            return periods, ()
        names = {id(module): name for name, module in self.question.model.named_modules()}
        for run, counts in zip(self.runs, periods, strict=True):
            if len(counts) == 1 and counts[0] > STANDING:
                (stretch,) = run.stretches
                where = names[id(run.layers)], stretch.start, STANDING * stretch.period
                more.append(Omitted(*where, counts[0] - STANDING))
                counts[0] = STANDING
        return periods, tuple(more)

    def few(self, options: Parallelism) -> tuple[Capture, More]:
        """Return the captured step that a search looks at, and the number of equal layers left out.

        If it cannot be traced with fewer layers (all of them are joined to one tensor, say), none are left
        out, and later prices come from the whole model. Raises what a capture raises.
        """
        periods, more = self.searched()
        try:
            return self.captured(periods, options), more
        except ShardcError as error:
            if not more:
                raise
            self.not_few(error)
            return self.captured(self.whole, options), ()

    def not_few(self, error: ShardcError) -> None:
        """Use the whole model from now on, because a model with fewer layers raised an error."""
        TIMING.debug("plan: few layers cannot be traced: %s", next(iter(str(error).splitlines())))
        self.runs = []

    def smaller(self, few: int, micro_batches: int) -> Versions:
        """Return the versions of the same step with the first ``few`` of its micro-batches."""
        if few == micro_batches:
            return self
        part = Fraction(few, micro_batches)
        if part not in self._smaller:
            batch = cut_micro_batches(self.question.batch, micro_batches, few).first
            question = replace(self.question, batch=batch, tokens=int(self.question.tokens * part))
            self._smaller[part] = made = Versions(question, self._autocast)
            made.runs, made.stands = self.runs, self.stands
        return self._smaller[part]

    def captured(self, periods: Periods, options: Parallelism) -> Capture:
        """Return the captured step with a copy of its module, which passes may change.

        One trace, with the calls of all repeated layers marked, is for all policies of recomputation. Raises
        what a capture raises.
        """
        with shallow(self.question, self.runs, periods) as q:
            layouts, again = layouts_of(q.model, options.constraints), recomputed(q.model, options)
            marked = again or tuple(repeated_layers(q.model))
            key = counts_of(periods), marked, tuple(layouts.items())
            if key not in self._captures:
                self._captures[key] = capture_step(
                    q.model,
                    q.optimizer,
                    q.batch,
                    loss=q.loss,
                    autocast=self._autocast,
                    context=new_context(),
                    noted=marked,
                    layouts=layouts,
                )
        capture = replace(self._captures[key], module=copy_module(self._captures[key].module), noted=again)
        if not again and (step := find_function(capture.module)):
            drop_modules(step)
        return capture

    def key(self, options: Parallelism) -> str:
        """Return a question's cache key: a hash of the step with few layers, and of the number of layers."""
        capture, more = self.few(options)
        text = capture.module.operation.get_asm(assume_verified=True)
        return hashlib.sha256(repr((text, more, self.whole)).encode()).hexdigest()


def counts_of(periods: Periods) -> Counts:
    """Return numbers of periods as a key."""
    return tuple(map(tuple, periods))
