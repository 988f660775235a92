"""Errors of pipelines: schedules that cannot run, and files of them."""

from __future__ import annotations

from typing import ClassVar

from shardc.diagnostics.base import ShardcError


class PipelineError(ShardcError):
    """Base of errors in pipelines."""


class BadAction(PipelineError):
    """An action of a schedule is not written as stage, kind and micro-batch.

    Fails: ``F0``. Works: ``2F0``.
    """

    template: ClassVar[str] = "{text!r} is no action of a pipeline"
    hint: ClassVar[str] = "write stage, kind (F, B, I or W) and micro-batch, such as 2F0"


class ScheduleStuck(PipelineError):
    """Ranks wait for each other for good."""

    template: ClassVar[str] = (
        "schedule {schedule} is stuck: nothing can run of {actions}, at which its ranks wait"
    )
    hint: ClassVar[str] = (
        "an action must stand behind what it needs, and a cap on memory leave room for every stage of a rank"
    )


class BadSchedule(PipelineError):
    """A schedule lacks an action, has one twice, or in a place where it can never run."""

    template: ClassVar[str] = "schedule {schedule} cannot run: {action} {problem}"
    hint: ClassVar[str] = (
        "every stage needs F and B (or I and W) of each micro-batch once, on one rank, behind F of the stage before "
        "and B or I of the stage behind"
    )


class TooMuchMemory(PipelineError):
    """A rank would hold more activations at a time than it may."""

    template: ClassVar[str] = (
        "schedule {schedule} makes rank {rank} hold {peak:,.0f} bytes of activations; it may hold {cap:,.0f}"
    )
    hint: ClassVar[str] = "take a schedule with fewer micro-batches in flight, or recompute activations"
