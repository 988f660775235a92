"""Every schedule by name, and what each can be made of."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardc.cost.pipeline import StageCost
from shardc.diagnostics.pipeline import BadMicroBatches, BadStages, UnknownSchedule, UnknownScheduleOption
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.schedules.asynchronous import pipe_dream, pipe_dream_2bw
from shardc.passes.pipeline.schedules.bidirectional import chimera
from shardc.passes.pipeline.schedules.one_f_one_b import breadth_first, fill_drain, interleaved, one_f_one_b
from shardc.passes.pipeline.schedules.token_level import seq_1f1b, tera_pipe
from shardc.passes.pipeline.schedules.v_shape import dual_pipe_v, v_half, v_min, zb_v
from shardc.passes.pipeline.schedules.wave import hanayo
from shardc.passes.pipeline.schedules.zero_bubble import zb_h1, zb_h2

GIVEN = ("ranks", "micro_batches", "stages_per_rank", "costs")
"""Parameters of generators that are no options of the schedule."""


@dataclass(frozen=True)
class Named:
    """A schedule's generator ``make(ranks, micro_batches, ...)``, what it is in a few words, and what it can be made
    of.

    ``takes`` says it of stages a rank: exactly ``per_rank`` of them, or any multiple of it from two on if ``several``.
    ``least`` and ``multiple`` of micro-batches, from the number of ranks; ``even_ranks`` only where it says so.
    """

    name: str
    make: Callable[..., Schedule]
    says: str
    per_rank: int = 1
    several: bool = False
    least: Callable[[int], int] = lambda ranks: 1
    multiple: Callable[[int], int] = lambda ranks: 1
    even_ranks: bool = False

    @cached_property
    def options(self) -> dict[str, object]:
        """Name -> default of what can be chosen beside stages and micro-batches."""
        parameters = inspect.signature(self.make).parameters.values()
        return {p.name: p.default for p in parameters if p.name not in GIVEN}

    @property
    def fewest(self) -> int:
        """Stages that a rank must have."""
        return max(2, self.per_rank) if self.several else self.per_rank

    @property
    def takes(self) -> str:
        count = {1: "one stage", 2: "two stages"}[self.per_rank]
        stages = (
            f"{'an even number of' if self.per_rank == 2 else 'two or more'} stages"
            if self.several
            else count
        )
        return f"{stages} a rank{', on an even number of ranks' if self.even_ranks else ''}"

    def accepts(self, stages: int, ranks: int) -> bool:
        """Whether it can put ``stages`` stages on ``ranks`` ranks."""
        per_rank, rest = divmod(stages, ranks)
        fits = per_rank > 1 and per_rank % self.per_rank == 0 if self.several else per_rank == self.per_rank
        return stages > 0 and rest == 0 and fits and not (self.even_ranks and ranks % 2)

    def check(self, stages: int, ranks: int, micro_batches: int) -> None:
        """Raises BadStages, BadMicroBatches."""
        if ranks < 1 or not self.accepts(stages, ranks):
            nearest = _nearest(self, stages, ranks)
            raise BadStages(schedule=self.name, stages=stages, ranks=ranks, takes=self.takes, nearest=nearest)
        count = self.nearest(ranks, micro_batches)
        if count != micro_batches:
            needs = self.needs(ranks)
            raise BadMicroBatches(
                schedule=self.name, ranks=ranks, needs=needs, micro_batches=micro_batches, nearest=count
            )

    def make_for(
        self,
        ranks: int,
        micro_batches: int,
        stages_per_rank: int,
        costs: Sequence[StageCost] | None,
        **options: object,
    ) -> Schedule:
        """The schedule; numbers must have been checked. Raises UnknownScheduleOption."""
        check_options(self.name, options, self.options)
        given = {"stages_per_rank": stages_per_rank, "costs": costs}
        taken = inspect.signature(self.make).parameters
        return self.make(ranks, micro_batches, **{k: v for k, v in given.items() if k in taken}, **options)

    def needs(self, ranks: int) -> str:
        """Of micro-batches, in words."""
        least, multiple = self.least(ranks), self.multiple(ranks)
        return (
            f"a multiple of {multiple} micro-batches"
            if multiple > 1
            else f"at least {least} micro-batch{'es' if least > 1 else ''}"
        )

    @property
    def needs_of_any(self) -> str:
        """The same for any number of ranks."""
        if self.multiple(7) == 7:
            return "a multiple of the ranks' number of micro-batches"
        if self.least(7) > 1:
            return f"at least {self.least(7) // 7} micro-batches for each rank"
        return self.needs(7)

    def nearest(self, ranks: int, micro_batches: int) -> int:
        """The valid number of micro-batches that is nearest to this one."""
        least, multiple = self.least(ranks), self.multiple(ranks)
        return max(least, multiple, multiple * ((2 * micro_batches + multiple - 1) // (2 * multiple)))


SCHEDULES = {
    named.name: named
    for named in (
        Named("fill-drain", fill_drain, "all forwards, then all backwards (GPipe)"),
        Named("1f1b", one_f_one_b, "a forward and a backward in turn (PipeDream-flush, DAPPLE)"),
        Named("breadth-first", breadth_first, "fill-drain over several stages a rank", several=True),
        Named(
            "interleaved",
            interleaved,
            "1F1B over several stages a rank (Megatron)",
            several=True,
            multiple=lambda r: r,
        ),
        Named("chimera", chimera, "two directions, parameters twice", multiple=lambda r: 2, even_ranks=True),
        Named("hanayo", hanayo, "waves forth and back over the ranks", per_rank=2, several=True),
        Named("zb-h1", zb_h1, "1F1B, weight gradients where a rank would wait"),
        Named("zb-h2", zb_h2, "no bubble, twice the memory"),
        Named("zb-v", zb_v, "no bubble at 1F1B's memory", per_rank=2),
        Named("v-half", v_half, "half of 1F1B's bubble at half of its memory", per_rank=2),
        Named("v-min", v_min, "two thirds of 1F1B's bubble at a third of its memory", per_rank=2),
        Named(
            "dualpipe-v",
            dual_pipe_v,
            "a forward beside a backward all the time",
            per_rank=2,
            least=lambda r: 2 * r,
        ),
        Named("terapipe", tera_pipe, "fill-drain over slices of sequences"),
        Named("seq-1f1b", seq_1f1b, "1F1B over slices of sequences"),
        Named("pipedream", pipe_dream, "no flush, stashed weights; changes the mathematics"),
        Named(
            "pipedream-2bw",
            pipe_dream_2bw,
            "no flush, two versions; changes the mathematics",
            multiple=lambda r: r,
        ),
    )
}
AUTO = "auto"
"""The name of none of them, but of the best that is found: ``synthesis.py``."""
ALIASES = {"gpipe": "fill-drain", "dapple": "1f1b", "pipedream-flush": "1f1b"}


def check_options(schedule: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Raises UnknownScheduleOption."""
    for option in options:
        if option not in known:
            raise UnknownScheduleOption(schedule=schedule, option=option, known=", ".join(known) or "none")


def named_schedule(name: str) -> Named:
    """Raises UnknownSchedule."""
    plain = name.lower().replace("_", "-")
    plain = ALIASES.get(plain, plain)
    if plain not in SCHEDULES:
        known = [*SCHEDULES, AUTO, *ALIASES]
        near = difflib.get_close_matches(plain, known, n=1, cutoff=0.5)
        nearest = f"; the nearest is {near[0]!r}" if near else ""
        raise UnknownSchedule(name=name, nearest=nearest, known=", ".join([*SCHEDULES, AUTO]))
    return SCHEDULES[plain]


def _nearest(named: Named, stages: int, ranks: int) -> str:
    """What could be asked for instead: as many ranks, if they can be used, and nearly as many stages."""
    pairs = [
        (s, r)
        for r in range(1, max(ranks, 1) + 2)
        for s in range(1, 2 * (abs(stages) + r))
        if named.accepts(s, r)
    ]
    s, r = min(pairs, key=lambda pair: (abs(pair[1] - ranks), abs(pair[0] - stages), pair))
    return f"cut the model into {s} stage{'s' if s > 1 else ''} for {r} rank{'s' if r > 1 else ''}"
