"""What a user says of a pipeline: its schedule, and where its stages start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_mlir import ir

from shardc.diagnostics.pipeline import BadScheduleFile
from shardc.dialects.pipe.csv_form import read_csv
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.pipe_cut import cut_into_stages, schedule_for


@dataclass(frozen=True)
class PipelineOptions:
    """``schedule``: a name, a CSV file, or a schedule. ``stages``: how many there are (0: as few as the
    schedule takes), or the modules at which each but the first starts. ``recompute``: ``none``, ``full`` or
    ``selective``, for all stages or one for each. ``cap_bytes``: what a device may hold of parameters, gradients,
    optimizer state and activations; 0 for any amount. ``stale_weights``: whether the schedule may change the
    mathematics. ``gather``: ``micro-batch`` or ``step``, what parameters that are cut are gathered for."""

    schedule: str | Path | Schedule = "1f1b"
    stages: int | Sequence[str] = 0
    recompute: str | Sequence[str] = "none"
    cap_bytes: float = 0
    stale_weights: bool = False
    gather: str = "micro-batch"


def cut_pipeline(module: ir.Module, axis: str, options: PipelineOptions) -> None:
    """Cuts the step of level 3 into stages along the mesh axis ``axis``.

    Raises UnknownSchedule, BadScheduleFile, WrongRecompute, NoCutFits and what :func:`cut_into_stages` raises.
    """
    cuts = () if isinstance(options.stages, int) else tuple(options.stages)
    stages = options.stages if isinstance(options.stages, int) else len(cuts) + 1
    given = options.schedule
    if isinstance(given, str) and not given.endswith(".csv"):
        given = schedule_for(module, axis, given, stages)
    schedule = given if isinstance(given, Schedule) else _from_file(given)
    cut_into_stages(
        module, schedule, axis, cuts, stages, options.recompute, options.cap_bytes,
        stale_weights=options.stale_weights, gather=options.gather,
    )  # fmt: skip


def _from_file(given: str | Path) -> Schedule:
    path = Path(given)
    try:
        return read_csv(path.read_text(), path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise BadScheduleFile(path=path, problem=str(error), where=str(path)) from None
