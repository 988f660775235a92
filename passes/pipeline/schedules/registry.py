"""Registry of schedules: their generators and options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardc.cost.pipeline import StageCost
from shardc.diagnostics.passes.pipeline import UnknownScheduleOption
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.stage_graph import Reads
from shardc.options.schedules import RULES, ScheduleRule, named_rule
from shardc.passes.pipeline.schedules.asynchronous import pipe_dream, pipe_dream_2bw
from shardc.passes.pipeline.schedules.bidirectional import chimera
from shardc.passes.pipeline.schedules.one_f_one_b import breadth_first, fill_drain, interleaved, one_f_one_b
from shardc.passes.pipeline.schedules.token_level import seq_1f1b, tera_pipe
from shardc.passes.pipeline.schedules.v_shape import dual_pipe_v, v_half, v_min, zb_v
from shardc.passes.pipeline.schedules.wave import hanayo
from shardc.passes.pipeline.schedules.zero_bubble import zb_h1, zb_h2

GIVEN = ("ranks", "micro_batches", "stages_per_rank", "costs", "reads")
"""Parameters of generators that are not options of the schedule."""


@dataclass(frozen=True)
class Named(ScheduleRule):
    """A schedule's rule, and its generator ``make(ranks, micro_batches, ...)``."""

    make: Callable[..., Schedule] = one_f_one_b

    @cached_property
    def options(self) -> dict[str, object]:
        """Options of the schedule besides stages and micro-batches: name -> default."""
        parameters = inspect.signature(self.make).parameters.values()
        return {p.name: p.default for p in parameters if p.name not in GIVEN}

    @cached_property
    def takes_graphs(self) -> bool:
        """Whether the schedule can be made for stages that are no chain."""
        return "reads" in inspect.signature(self.make).parameters

    def make_for(
        self,
        ranks: int,
        micro_batches: int,
        stages_per_rank: int,
        costs: Sequence[StageCost] | None,
        reads: Reads = (),
        **options: object,
    ) -> Schedule:
        """Return the schedule. The caller has checked the numbers. Raises UnknownScheduleOption.

        ``reads``: what each stage reads, if stages are no chain and the schedule takes graphs.
        """
        more = ["reads"] if reads and not self.takes_graphs else []
        check_options(self.name, [*options, *more], self.options)
        given = {"stages_per_rank": stages_per_rank, "costs": costs, "reads": reads}
        taken = inspect.signature(self.make).parameters
        return self.make(ranks, micro_batches, **{k: v for k, v in given.items() if k in taken}, **options)


GENERATORS: dict[str, Callable[..., Schedule]] = {
    "fill-drain": fill_drain,
    "1f1b": one_f_one_b,
    "breadth-first": breadth_first,
    "interleaved": interleaved,
    "chimera": chimera,
    "hanayo": hanayo,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "zb-v": zb_v,
    "v-half": v_half,
    "v-min": v_min,
    "dualpipe-v": dual_pipe_v,
    "terapipe": tera_pipe,
    "seq-1f1b": seq_1f1b,
    "pipedream": pipe_dream,
    "pipedream-2bw": pipe_dream_2bw,
}
SCHEDULES = {name: Named(**vars(rule), make=GENERATORS[name]) for name, rule in RULES.items()}


def check_options(schedule: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Check the names of options. Raises UnknownScheduleOption."""
    for option in options:
        if option not in known:
            raise UnknownScheduleOption(schedule=schedule, option=option, known=", ".join(known) or "none")


def named_schedule(name: str) -> Named:
    """Return the schedule of that name. Raises UnknownSchedule."""
    return SCHEDULES[named_rule(name).name]
