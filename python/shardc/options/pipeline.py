"""Options of a pipeline: its stages and the order in which they run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.passes.pipeline import (
    BadScheduleFile,
    BadSpeeds,
    ChangesMathematics,
    NoMicroBatches,
)
from shardc.options.field import Group, Hint, option
from shardc.options.plan_file import named_file
from shardc.options.recompute import Recompute, is_of_stages, policies_of
from shardc.options.schedules import AUTO, named_rule

Gather = Literal["micro-batch", "step"]
"""When to all-gather parameters that other axes shard: once per micro-batch, or once per step.

Once per micro-batch gathers again in backward. Once per step is an action of its own, which sends less and
holds more.
"""


@runtime_checkable
class ScheduleLike(Protocol):
    """A ready schedule: ``shardc.dialects.pipe.schedule.Schedule``."""

    name: str
    orders: object
    routes: object


def read_stages(text: str) -> int | list[str]:
    """Parse ``4`` as a number, ``layers.8,layers.16`` as names."""
    is_number = text.isdecimal() and len(text) < 20  # Python refuses numbers of thousands of digits
    return int(text) if is_number else [name.strip() for name in text.split(",")]


def read_speeds(text: str) -> list[float]:
    """Parse ``3,1`` as numbers. Raises BadArgument."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise BadArgument(
            argument="--speeds", given=repr(text), expected="numbers with commas", hint="as in --speeds 3,1"
        ) from None


@dataclass(frozen=True)
class Pipeline(Group):
    """Options of the stages and the schedule of a plan such as ``pipeline*data``.

    Example:
        >>> step = shardc.compile_step(
        ...     model,
        ...     optimizer,
        ...     batch,
        ...     loss=loss,
        ...     mesh={"pipe": 2},
        ...     plan="pipeline",
        ...     micro_batches=4,
        ...     pipeline=shardc.Pipeline(schedule="zb-h1", stages=("2",)),
        ... )
    """

    schedule: str | Path | ScheduleLike = option(
        "1f1b",
        "Order of the stages' actions: a schedule's name (shardc schedule lists them), auto (the fastest on "
        "the cluster within its memory), or a CSV file.",
        Hint("the name of a schedule, a CSV file, or a schedule", 'as in schedule="1f1b"'),
    )
    stages: int | tuple[str, ...] | None = option(
        None,
        "Number of stages, or the modules at which all but the first start. If not given, as few "
        "as the schedule takes.",
        Hint(
            "a whole number from 1, or names of modules",
            'as in stages=4, or stages=["layers.8", "layers.16", "layers.24"]',
            "N|MODULE,...",
        ),
        at_least=1,
        parse=read_stages,
    )
    stale_weights: bool = option(
        False, "Allow a schedule that changes the mathematics: pipedream, pipedream-2bw."
    )
    memory_limit_bytes: float | None = option(
        None,
        "Bytes that a device may hold of parameters, gradients, optimizer state and activations "
        "in flight; stages are cut to fit.",
        Hint("a number of bytes above 0", "as in memory_limit_bytes=80e9", "BYTES"),
        above=0,
        was=("cap_bytes", "memory"),
    )
    gather: Gather = option(
        "micro-batch",
        "When to all-gather parameters that other axes of the plan shard: once per micro-batch, "
        "or once per step.",
    )
    speeds: tuple[float, ...] | None = option(
        None,
        "Relative speed of each rank of the pipeline, if devices differ: stages get work in proportion.",
        Hint("a number above 0 for each rank of the pipeline", "as in speeds=[3, 1]", "NUMBER,..."),
        parse=read_speeds,
    )
    balance_activations: bool = option(
        False,
        "Let ranks that hold the activations of many micro-batches keep some on ranks that hold few (BPipe): "
        "under memory_limit_bytes as few as needed, otherwise until all hold about the same.",
    )

    @property
    def cuts(self) -> tuple[str, ...]:
        """Return the modules at which all stages but the first start, if they were named."""
        return self.stages if isinstance(self.stages, tuple) else ()

    @property
    def stage_count(self) -> int:
        """Return the requested number of stages; 0 for as few as the schedule takes."""
        if isinstance(self.stages, int):
            return self.stages
        return len(self.cuts) + 1 if self.cuts else 0

    @property
    def schedule_path(self) -> Path | None:
        """Return the schedule's file, if ``schedule`` names one."""
        return named_file(self.schedule, ".csv")

    def check(self, ranks: int, micro_batches: int, recompute: Recompute = "none") -> None:
        """Check that such a pipeline of ``ranks`` devices and ``micro_batches`` can exist.

        ``recompute``: policy of recomputation for all stages, or for each.

        Raises NoMicroBatches, BadSpeeds, BadScheduleFile, UnknownSchedule, BadStages, BadMicroBatches,
        ChangesMathematics, WrongRecompute.
        """
        if micro_batches == 1:
            raise NoMicroBatches()
        if self.speeds is not None and (len(self.speeds) != ranks or min(self.speeds) <= 0):
            raise BadSpeeds(given=list(self.speeds), ranks=ranks)
        path = self.schedule_path
        if path is not None and not path.is_file():
            raise BadScheduleFile(path=path, problem="there is no such file", where=str(path))
        if path is None and isinstance(self.schedule, str) and self.schedule != AUTO:
            rule = named_rule(self.schedule)
            stages = self.stage_count or rule.fewest * ranks
            rule.check(stages, ranks, micro_batches)
            if rule.changes_mathematics and not self.stale_weights:
                raise ChangesMathematics(schedule=rule.name)
            if is_of_stages(recompute):
                policies_of(recompute, stages)
