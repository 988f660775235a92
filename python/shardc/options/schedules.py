"""Pipeline schedules by name, with the stages, ranks and micro-batches that each allows."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from shardc.diagnostics.passes.pipeline import BadMicroBatches, BadStages, TooLargeToPlay, UnknownSchedule

AUTO = "auto"
"""Schedule that is searched for given costs."""
MOST_STAGES, MOST_PAIRS = 1024, 1 << 16
"""Limits of stages or ranks, and of stages times micro-batches. Checks then take at most half a minute."""
ALIASES = {"gpipe": "fill-drain", "dapple": "1f1b", "pipedream-flush": "1f1b"}


@dataclass(frozen=True)
class ScheduleRule:
    """Name, short description and requirements of a schedule.

    Attributes:
        says: Short description.
        per_rank: Stages on each rank.
        several: Whether a rank has at least two stages, and any multiple of ``per_rank``.
        least: Minimum number of micro-batches, as a function of the ranks.
        multiple: Divisor of the number of micro-batches, as a function of the ranks.
        even_ranks: Whether the number of ranks must be even.
        changes_mathematics: Whether stages update their weights while micro-batches are in flight.
    """

    name: str
    says: str
    per_rank: int = 1
    several: bool = False
    least: Callable[[int], int] = lambda ranks: 1
    multiple: Callable[[int], int] = lambda ranks: 1
    even_ranks: bool = False
    changes_mathematics: bool = False

    @property
    def fewest(self) -> int:
        """Return the fewest stages that a rank must have."""
        return max(2, self.per_rank) if self.several else self.per_rank

    @property
    def takes(self) -> str:
        exactly, several = ("one stage", "two stages"), ("two or more stages", "an even number of stages")
        stages = (several if self.several else exactly)[self.per_rank - 1]
        return f"{stages} a rank{', on an even number of ranks' if self.even_ranks else ''}"

    def accepts(self, stages: int, ranks: int) -> bool:
        """Return whether the schedule can place ``stages`` stages on ``ranks`` ranks."""
        per_rank, rest = divmod(stages, ranks)
        fits = per_rank > 1 and per_rank % self.per_rank == 0 if self.several else per_rank == self.per_rank
        return stages > 0 and rest == 0 and fits and not (self.even_ranks and ranks % 2)

    def check(self, stages: int, ranks: int, micro_batches: int) -> None:
        """Raise TooLargeToPlay, BadStages or BadMicroBatches if the schedule does not allow these numbers."""
        check_size(stages, ranks, micro_batches)
        if ranks < 1 or not self.accepts(stages, ranks):
            nearest = _nearest(self, stages, ranks)
            raise BadStages(schedule=self.name, stages=stages, ranks=ranks, takes=self.takes, nearest=nearest)
        count = self.nearest(ranks, micro_batches)
        if count != micro_batches:
            needs = self.needs(ranks)
            raise BadMicroBatches(
                schedule=self.name, ranks=ranks, needs=needs, micro_batches=micro_batches, nearest=count
            )

    def needs(self, ranks: int) -> str:
        """Describe the required number of micro-batches."""
        least, multiple = self.least(ranks), self.multiple(ranks)
        if multiple > 1:
            return f"a multiple of {multiple} micro-batches"
        return f"at least {least} micro-batch{'es' if least > 1 else ''}"

    @property
    def needs_of_any(self) -> str:
        """Describe the required number of micro-batches for any number of ranks."""
        if self.multiple(7) == 7:
            return "a multiple of the ranks' number of micro-batches"
        if self.least(7) > 1:
            return f"at least {self.least(7) // 7} micro-batches for each rank"
        return self.needs(7)

    def nearest(self, ranks: int, micro_batches: int) -> int:
        """Return the valid number of micro-batches that is nearest to this one."""
        least, multiple = self.least(ranks), self.multiple(ranks)
        return max(least, multiple, multiple * ((2 * micro_batches + multiple - 1) // (2 * multiple)))


RULES = {
    rule.name: rule
    for rule in (
        ScheduleRule("fill-drain", "all forwards, then all backwards (GPipe)"),
        ScheduleRule("1f1b", "a forward and a backward in turn (PipeDream-flush, DAPPLE)"),
        ScheduleRule("breadth-first", "fill-drain over several stages a rank", several=True),
        ScheduleRule(
            "interleaved", "1F1B over several stages a rank (Megatron)", several=True, multiple=lambda r: r
        ),
        ScheduleRule("chimera", "two directions, parameters twice", multiple=lambda r: 2, even_ranks=True),
        ScheduleRule("hanayo", "waves forth and back over the ranks", per_rank=2, several=True),
        ScheduleRule("zb-h1", "1F1B, weight gradients where a rank would wait"),
        ScheduleRule("zb-h2", "no bubble, twice the memory"),
        ScheduleRule("zb-v", "no bubble at 1F1B's memory", per_rank=2),
        ScheduleRule("v-half", "half of 1F1B's bubble at half of its memory", per_rank=2),
        ScheduleRule("v-min", "two thirds of 1F1B's bubble at a third of its memory", per_rank=2),
        ScheduleRule(
            "dualpipe-v", "a forward beside a backward all the time", per_rank=2, least=lambda r: 2 * r
        ),
        ScheduleRule("terapipe", "fill-drain over slices of sequences"),
        ScheduleRule("seq-1f1b", "1F1B over slices of sequences"),
        ScheduleRule(
            "pipedream", "no flush, stashed weights; changes the mathematics", changes_mathematics=True
        ),
        ScheduleRule(
            "pipedream-2bw",
            "no flush, two versions; changes the mathematics",
            multiple=lambda r: r,
            changes_mathematics=True,
        ),
    )
}
"""Schedules by name. ``shardc.passes.pipeline.schedules.registry`` has the functions that make them."""


def named_rule(name: str) -> ScheduleRule:
    """Return the schedule of this name or alias. Raises UnknownSchedule."""
    plain = name.lower().replace("_", "-")
    plain = ALIASES.get(plain, plain)
    if plain not in RULES:
        near = get_close_matches(plain, [*RULES, AUTO, *ALIASES], n=1, cutoff=0.5)
        nearest = f"; the nearest is {near[0]!r}" if near else ""
        raise UnknownSchedule(name=name, nearest=nearest, known=", ".join([*RULES, AUTO]))
    return RULES[plain]


def check_size(stages: int, ranks: int, micro_batches: int) -> None:
    """Raise TooLargeToPlay if checks would take too long."""
    if max(abs(stages), abs(ranks)) > MOST_STAGES or abs(stages * micro_batches) > MOST_PAIRS:
        raise TooLargeToPlay(
            stages=stages, ranks=ranks, micro_batches=micro_batches, most=MOST_STAGES, pairs=MOST_PAIRS
        )


def check_named(name: str, stages: int, micro_batches: int, ranks: int | None = None) -> int | None:
    """Check that the named schedule allows these numbers; return ``ranks``, or the most that it can use.

    For ``auto`` and CSV files only the size is checked. Raises TooLargeToPlay, UnknownSchedule, BadStages,
    BadMicroBatches.
    """
    check_size(stages, ranks or stages, micro_batches)
    if name == AUTO or name.endswith(".csv"):
        return ranks
    rule = named_rule(name)
    ranks = max(1, stages // rule.fewest) if ranks is None else ranks
    rule.check(stages, ranks, micro_batches)
    return ranks


def _nearest(rule: ScheduleRule, stages: int, ranks: int) -> str:
    """Suggest the nearest valid number of stages, for as many ranks if possible."""
    pairs = ((s, r) for r in range(1, max(ranks, 1) + 2) for s in range(1, 2 * (abs(stages) + r)))
    fitting = (pair for pair in pairs if rule.accepts(*pair))
    s, r = min(fitting, key=lambda pair: (abs(pair[1] - ranks), abs(pair[0] - stages), pair))
    return f"cut the model into {s} stage{'s' if s > 1 else ''} for {r} rank{'s' if r > 1 else ''}"
