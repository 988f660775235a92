"""Prices of one question's plans: from a model of a few layers where the others are equal to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from shardc.diagnostics.base import ShardcError
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.spec import Capture
from shardc.options.parallelism import Parallelism
from shardc.options.step import StepOptions
from shardc.passes.manager.program import copy_module
from shardc.planning.candidates import Candidate
from shardc.planning.depth.blend import Blend, NotAffine
from shardc.planning.depth.runs import runs_of
from shardc.planning.depth.shallow import Periods, shallow
from shardc.planning.offload import offloaded
from shardc.planning.price import Priced, price_of
from shardc.planning.question import Question
from shardc.runtime.report.logs import TIMING
from shardc.step.foreign.resolve import resolve_plan
from shardc.step.recomputed import recomputed
from shardc.step.shard import Compiled, compile_capture, make_mesh, model_plan_of

FEW, MORE, CHECKED = 2, 3, 4
"""Periods of equal layers: of the shallow program, of a deeper one, and of the one that both foretell."""
TOLERANCE = 1e-3
"""By how much of itself a foretold number may be off."""


class Pricer:
    """Prices of one question's plans. Each version of the model is captured once."""

    def __init__(self, question: Question, autocast: str | None = None) -> None:
        self.question = question
        self._autocast = None if autocast is None else getattr(torch, autocast)
        self._captures: dict[tuple[tuple[tuple[int, ...], ...], tuple[str, ...]], Capture] = {}
        """By how many periods of equal layers there are, and the modules that are noted."""
        self._runs = runs_of(question.model)
        self._is_checked = False

    def price(self, candidate: Candidate, *, whole: bool = False, **options: object) -> Priced:
        """What one plan's costs follow from. ``options``: more of ``compile_step``'s. ``whole``: compile each
        layer.

        Raises what a compile raises.
        """
        if not whole and self._is_affine(candidate, options):
            try:
                return _with_offload(self._foretold(candidate, self._whole(), options), options)
            except NotAffine as error:
                _log(str(error))
        return _with_offload(self._price(candidate, self._whole(), options), options)

    def _is_affine(self, candidate: Candidate, options: dict[str, object]) -> bool:
        """Whether equal layers may stand for others. Stages and plans of files speak of single layers."""
        is_by_name = not isinstance(options.get("recompute", "none"), str)
        if is_by_name or "pipeline" in candidate.plan or candidate.plan.endswith(".json"):
            return False
        if self._runs and not self._is_checked:
            self._check(candidate, options)
        return bool(self._runs)

    def compiled(self, candidate: Candidate, periods: Periods | None = None, **options: object) -> Compiled:
        """The rank program of one plan, at level 3; of ``periods`` equal layers where they are given."""
        given = {"mesh": candidate.mesh, "plan": candidate.plan, "micro_batches": candidate.micro_batches}
        chosen = StepOptions.of({**given, **options})
        model = self.question.model
        plan, pipeline = resolve_plan(chosen.parallelism, model, chosen.pipeline)
        return compile_capture(
            self._captured(self._whole() if periods is None else periods, chosen.parallelism),
            make_mesh(candidate.mesh, candidate.micro_batches),
            plan,
            model_plan=model_plan_of(model),
            pipeline=pipeline,
            recompute=chosen.parallelism.recompute,
            reduce_dtype=chosen.numerics.reduce_dtype,
            reshard_after_forward=chosen.parallelism.reshard_after_forward,
        )

    def _whole(self) -> Periods:
        return [[stretch.count for stretch in run.stretches] for run in self._runs]

    def _even(self, count: int) -> list[list[int]]:
        return [[count] * len(run.stretches) for run in self._runs]

    def _price(self, candidate: Candidate, periods: Periods, options: dict[str, object]) -> Priced:
        return price_of(candidate, self.question.tokens, self.compiled(candidate, periods, **options))

    def _foretold(self, candidate: Candidate, counts: Periods, options: dict[str, object]) -> Priced:
        """The costs of a model of so many periods, from two and three of each stretch."""
        deeper, more = [], []
        for r, run in enumerate(counts):
            for s, count in enumerate(run):
                periods = self._even(FEW)
                periods[r][s] = MORE
                deeper.append(self._price(candidate, periods, options))
                more.append((count - FEW) // (MORE - FEW))
        return blended(self._price(candidate, self._even(FEW), options), deeper, Blend(tuple(more)))

    def _check(self, candidate: Candidate, options: dict[str, object]) -> None:
        """Compare what two and three periods foretell of four with these. What is not affine has no runs."""
        self._is_checked = True
        try:
            periods = self._even(CHECKED)
            found = self._price(candidate, periods, options)
            foretold = self._foretold(candidate, periods, options)
            problem = difference(foretold, found)
        except NotAffine as error:
            problem = str(error)
        except ShardcError as error:
            # the whole model, which is asked then, has its own errors
            problem = next(iter(str(error).splitlines()))
        if problem:
            _log(problem)
            self._runs = []

    def _captured(self, periods: Periods, options: Parallelism) -> Capture:
        """The captured step, with a module of its own for the passes to change."""
        counts = tuple(map(tuple, periods))
        with shallow(self.question, self._runs, periods) as q:
            noted = recomputed(q.model, options)
            if (counts, noted) not in self._captures:
                self._captures[counts, noted] = capture_step(
                    q.model,
                    q.optimizer,
                    q.batch,
                    loss=q.loss,
                    autocast=self._autocast,
                    context=new_context(),
                    noted=noted,
                )
        capture = self._captures[counts, noted]
        return replace(capture, module=copy_module(capture.module))


def _with_offload(priced: Priced, options: dict[str, object]) -> Priced:
    if options.get("offload") != "optimizer":
        return priced
    return replace(priced, memory=[offloaded(rank) for rank in priced.memory])


def _log(problem: str) -> None:
    TIMING.debug("plan: each layer is compiled: %s", problem)


def blended(shallow: Priced, deeper: Sequence[Priced], blend: Blend) -> Priced:
    """The price of a model with more layers. ``deeper``: with a period more of one stretch each."""
    memory = [
        blend.memory(rank, [other.memory[n] for other in deeper]) for n, rank in enumerate(shallow.memory)
    ]
    seconds = {}
    for priced in (shallow, *deeper):
        for name, taken in priced.seconds.items():
            seconds[name] = seconds.get(name, 0.0) + taken
    return replace(
        shallow,
        memory=memory,
        work=blend.work(shallow.work, [other.work for other in deeper]),
        transfers=blend.transfers(shallow.transfers, [other.transfers for other in deeper]),
        seconds=seconds,
        deeper=[other.step for other in deeper],
        blend=blend,
    )


def difference(foretold: Priced, found: Priced) -> str:
    """Which number was foretold wrongly, in words; empty if none was."""
    numbers = {
        "bytes at the peak": lambda priced: priced.fullest.peak_bytes,
        "bytes of state": lambda priced: priced.fullest.state_bytes,
        "operations": lambda priced: sum(work.flops for work in priced.work.own),
        "bytes of passes over memory": lambda priced: sum(work.bytes_moved for work in priced.work.own),
        "bytes sent": lambda priced: sum(priced.sent.values()),
    }
    for name, number in numbers.items():
        expected, real = number(foretold), number(found)
        if abs(expected - real) > TOLERANCE * max(real, 1):
            return f"{name} are not affine in the number of layers ({expected:.6g} for {real:.6g})"
    return ""
