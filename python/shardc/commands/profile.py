"""``shardc profile``: measured times of the calls of an artefact's program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import cast

from shardc.artefact.folder import read_manifest
from shardc.artefact.manifest import Manifest
from shardc.cache.scratch import scratch
from shardc.commands.folder_calls import FolderCalls, is_for_cpus
from shardc.commands.run import launch, program_hash
from shardc.compiler.profiling.known import conditions, known_profile, predicted
from shardc.compiler.profiling.program_calls import renamed
from shardc.cost.profile import Conditions, PredictedStep
from shardc.diagnostics.runtime import BadArtefact
from shardc.diagnostics.tuner import NotProfiled
from shardc.tuner.database.profiles import record_profile, record_program

Rounds = list[list[tuple[str, float]]]
"""For each step, its calls with their seconds."""
MIDDLE = 3
"""Share of steps that are averaged: the third whose times are in the middle."""


def profile(folder: Path, steps: int = 15, again: bool = False, libraries: Sequence[str] = ()) -> str:
    """Measure the calls of an artefact's program that were not measured before, and report a step's time.

    The program runs ``steps`` steps on all of its processes. ``again`` measures all calls anew. Raises
    BadArtefact, NotProfiled, PeakUnknown, RankFailed.
    """
    folder = folder.absolute()
    manifest = read_manifest(folder)
    _check(folder, manifest)
    found = FolderCalls.read(folder, manifest)
    where = conditions(found.mesh.world_size)
    calls = [call for rank in found.ranks for call in rank.calls]
    missing = dict.fromkeys(c.text for c in calls) if again else known_profile(where.processes).missing(calls)
    if missing:
        measured = _measure(found, steps, libraries)
        record_profile(where, {call: measured[call] for call in missing if call in measured})
    time = predicted(found.ranks, where.processes)
    if time is None:
        raise NotProfiled(left=known_profile(where.processes).missing(calls)[0], where=str(folder))
    peak_bytes = max(rank.peak.size_bytes for rank in found.ranks)
    record_program(where, program_hash(manifest), PredictedStep(time.seconds, peak_bytes))
    return "\n".join([_measured_text(len(missing), len({c.text for c in calls}), where), *time.render()])


def _check(folder: Path, manifest: Manifest) -> None:
    """Raise BadArtefact for GPU kernels."""
    if not is_for_cpus(manifest):
        problem, hint = (
            "its kernels are for a GPU",
            "compile it with --target cpu; shardc profile measures CPUs",
        )
        raise BadArtefact(problem=problem, hint=hint, where=str(folder))


def _measure(found: FolderCalls, steps: int, libraries: Sequence[str]) -> dict[str, float]:
    """Return the mean seconds of each call, by the call's name in a profile."""
    with scratch() as made:
        arguments = ["--steps", str(steps), "--calls", made]
        launch(found.path, found.mesh.world_size, arguments, libraries)
        held = [json.loads((Path(made) / f"{n}.json").read_text()) for n in range(found.mesh.world_size)]
    seconds: dict[str, list[float]] = {}
    for text, figure in _middle([cast(Rounds, rank["rounds"]) for rank in held]):
        seconds.setdefault(renamed(text, found.names), []).append(figure)
    return {text: mean(figures) for text, figures in seconds.items()}


def _middle(ranks: Sequence[Rounds]) -> list[tuple[str, float]]:
    """Return the calls of the steps whose times are in the middle, which excludes disturbed steps."""
    count = len(ranks[0])
    took = [sum(s for rank in ranks for _, s in rank[number]) for number in range(count)]
    ordered = sorted(range(count), key=took.__getitem__)
    edge = (count - max(1, count // MIDDLE)) // 2
    chosen = ordered[edge : count - edge]
    return [(text, figure) for rank in ranks for number in chosen for text, figure in rank[number]]


def _measured_text(new: int, whole: int, where: Conditions) -> str:
    at_once = f"{where.processes} processes at once, {where.threads} threads each"
    return f"{new} of {whole} different calls measured: {at_once}, on {where.machine}"
