"""Plans whose estimates come close to that of a search's pick: other choices of the search, and presets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardc.diagnostics.base import ShardcError
from shardc.planning.auto.kept import Answer
from shardc.planning.auto.searches import Searches
from shardc.planning.candidates import DATA, PIPE, Candidate, meshes_of, plans_of
from shardc.runtime.report import progress
from shardc.runtime.report.logs import PLAN

CLOSE = 1.5
"""Largest estimate, relative to the pick's, of plans that are tried.

On CPU processes that share cores, plans took 0.7 to 1.5 times their estimates (decision 136)."""


@dataclass(frozen=True)
class Estimated:
    """Plan, and what a step takes by the cost model: seconds, and bytes on the fullest device."""

    candidate: Candidate
    seconds: float
    held_bytes: float


def close_plans(searches: Searches, answer: Answer, count: int) -> list[Estimated]:
    """Return the pick and at most ``count`` - 1 plans that are close to it.

    Plain data parallelism comes first, then plans that differ in their mesh, then others, each time the
    fastest by the cost model first. All of them together fit into a device's memory.
    """
    most_s = CLOSE * answer.seconds
    others = [found for found in _others(searches, answer) if found.seconds <= most_s]
    seen, plain = {_parts(answer.candidate)}, list[Estimated]()
    first, second = list[Estimated](), list[Estimated]()
    for found in sorted(others, key=lambda estimated: estimated.seconds):
        parts = _parts(found.candidate)
        (plain if found.candidate.plan == DATA else second if parts in seen else first).append(found)
        seen.add(parts)
    pick = Estimated(answer.candidate, answer.seconds, answer.peak_bytes)
    left_bytes = min(device.memory_bytes for device in searches.cluster.devices) - pick.held_bytes
    chosen = [pick]
    for found in (*plain, *first, *second):
        if found.held_bytes <= left_bytes and len(chosen) < count:
            chosen.append(found)
            left_bytes -= found.held_bytes
    return chosen


def _others(searches: Searches, answer: Answer) -> Iterator[Estimated]:
    for estimate in answer.around.found:
        if estimate.choice.candidate.text != answer.candidate.text:
            yield Estimated(estimate.choice.candidate, estimate.seconds, estimate.held_bytes)
    for candidate in _presets(searches):
        progress.step(f"price of {candidate.text}")
        try:
            price = searches.pricer.price(candidate).on(searches.cluster)
        except ShardcError as error:
            PLAN.info("%s is not tried: %s", candidate.text, next(iter(str(error).splitlines())))
            continue
        if price.fits:
            yield Estimated(candidate, price.time.seconds, price.needed_bytes)


def _presets(searches: Searches) -> Iterator[Candidate]:
    """Yield presets and their products. Pipelines are among the search's own choices.

    ``zero2`` and ``sequence`` send as much as ``zero1`` and ``tensor``, and compute the same.
    """
    question, cluster = searches.pricer.question, searches.cluster
    for mesh in meshes_of(cluster.size, cluster.levels[0].ways, question.samples, layers=1):
        for candidate in plans_of(mesh, question.samples):
            if not {"zero2", "sequence"}.intersection(candidate.plan.split("*")):
                yield candidate


def _parts(candidate: Candidate) -> tuple[object, ...]:
    """Return what plans must differ in to be tried first: the mesh, and whether shardings are searched."""
    sizes = sorted(size for axis, size in candidate.mesh.items() if axis != PIPE)
    names = () if "auto" in candidate.plan else tuple(candidate.mesh)
    return candidate.mesh.get(PIPE, 1), tuple(sizes), names
