"""Prices of one question's pipelines, by few of the equal layers and of the micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shardc.options.pipeline import Pipeline
from shardc.passes.pipeline.schedules import by_name
from shardc.passes.pipeline.schedules.balance_activations import balance_activations
from shardc.planning.candidates import Candidate, options_of
from shardc.planning.depth.fallback import unless_refused
from shardc.planning.depth.staged import Compile, Sizes, Uncut, fewest, staged, uncut
from shardc.planning.price import Priced
from shardc.planning.programs import Programs
from shardc.step.modules.recomputed import recomputed
from shardc.step.schedule.form import schedule_form
from shardc.step.shard import CutAt


@dataclass(frozen=True)
class Pipelines:
    """Prices of one question's pipelines.

    Attributes:
        programs: Programs of the question's plans, which prices are blended from.
        looked: Pipelines that were looked at and not priced yet, by plan and options; None for those that
            need each layer.
    """

    programs: Programs
    looked: dict[tuple[str, str], Uncut | None] = field(default_factory=dict)

    def price(self, candidate: Candidate, options: Mapping[str, object]) -> Priced | None:
        """Predict the price of a pipeline. Return None if each of its layers must be compiled.

        ``options``: other options of ``compile_step``.
        """
        looked, sizes = self.look(candidate, options), self._sizes(candidate, options)
        if looked is None or sizes is None:
            return None
        self.looked.clear()
        schedule = by_name.schedule(sizes.form.name, sizes.stages, sizes.micro_batches, ranks=sizes.ranks)
        if sizes.form.balances:
            schedule = balance_activations(schedule)
        compiled = self._compiles(candidate, options, sizes)
        return unless_refused(lambda: replace(staged(compiled, looked, sizes, schedule), candidate=candidate))

    def look(self, candidate: Candidate, options: Mapping[str, object]) -> Uncut | None:
        """Return a pipeline before it is cut, compiled with few layers. Return None if that fails.

        A later :meth:`price` does not compile it again. ``options``: as in :meth:`price`.
        """
        key, sizes = (candidate.text, repr(options)), self._sizes(candidate, options)
        if sizes is not None and key not in self.looked:
            compiled = self._compiles(candidate, options, sizes)
            self.looked[key] = unless_refused(lambda: uncut(compiled, sizes))
        return self.looked.get(key)

    def _sizes(self, candidate: Candidate, options: Mapping[str, object]) -> Sizes | None:
        """Return the sizes of a pipeline; None if each of its layers must be compiled.

        Whole stages that are recomputed hold values of all their layers at once, in another order than few.
        """
        chosen = options_of(candidate, options)
        ranks = candidate.mesh.get(chosen.parallelism.pipeline_axis(), 1)
        counts = [stretch.count for run in self.programs.versions.runs for stretch in run.stretches]
        given, form = chosen.pipeline or Pipeline(), schedule_form(chosen.pipeline, ranks)
        is_plain = given == Pipeline(
            schedule=given.schedule,
            stages=given.stage_count or None,
            balance_activations=given.balance_activations,
        )
        of_stages = chosen.parallelism.recompute != "none" and not recomputed(
            self.programs.versions.question.model, chosen.parallelism
        )
        if form is None or not is_plain or of_stages or len(counts) != 1 or ranks == 1:
            return None
        parts = candidate.micro_batches
        return Sizes(counts[0], ranks, parts, fewest(ranks, parts, form), form)

    def _compiles(self, candidate: Candidate, options: Mapping[str, object], sizes: Sizes) -> Compile:
        def compiled(layers: int, cut_at: CutAt, *, is_few: bool) -> Priced:
            programs = self._with_few(sizes) if is_few else self.programs
            asked = replace(candidate, micro_batches=sizes.few) if is_few else candidate
            # What is cut contains the ops of what is not.
            periods = self.programs.versions.even(layers)
            return programs.price(asked, periods, options, verify=is_few, cut_at=cut_at)

        return compiled

    def _with_few(self, sizes: Sizes) -> Programs:
        """Return the same step's programs with the few micro-batches that are compiled."""
        smaller = self.programs.versions.smaller(sizes.few, sizes.micro_batches)
        return replace(self.programs, versions=smaller)
