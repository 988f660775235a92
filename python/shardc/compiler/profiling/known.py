"""Stored measurements of this machine's calls, and the step time that they predict."""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from shardc.compiler.profiling.conditions import conditions
from shardc.compiler.profiling.program_calls import Played, played_module
from shardc.cost.profile import Profile
from shardc.cost.step.step_time import StepTime
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.tuner.database.place import database_path
from shardc.tuner.database.profiles import read_profile


def known_profile(processes: int) -> Profile:
    """Return the measurements made under these conditions; empty if there are none."""
    where = conditions(processes)
    if not database_path().is_file():
        return Profile(where, {})
    return read_profile(where)


def predicted(ranks: Sequence[Played], processes: int) -> StepTime | None:
    """Predict a step's time on this machine; None unless all of its calls were measured."""
    profile = known_profile(processes)
    if any(profile.missing(rank.calls) for rank in ranks):
        return None
    return profile.step_time([rank.calls for rank in ranks])


def predicted_time(module: ir.Module, processes: int) -> StepTime | None:
    """Predict the time of a module of level 3 or 4."""
    try:
        return predicted(played_module(module), processes)
    except PeakUnknown:
        return None
