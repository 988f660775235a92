"""What is known of this machine's calls, and what a step takes by it."""

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
    """What was measured under these conditions; empty where nothing was."""
    where = conditions(processes)
    if not database_path().is_file():
        return Profile(where, {})
    return read_profile(where)


def predicted(ranks: Sequence[Played], processes: int) -> StepTime | None:
    """The time of a step on this machine, None unless each of its calls was measured."""
    profile = known_profile(processes)
    if any(profile.missing(rank.calls) for rank in ranks):
        return None
    return profile.step_time([rank.calls for rank in ranks])


def predicted_time(module: ir.Module, processes: int) -> StepTime | None:
    """The same of a module of level 3 or 4."""
    try:
        return predicted(played_module(module), processes)
    except PeakUnknown:
        return None
