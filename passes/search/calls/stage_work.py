"""Work of the stages into which a forward can be cut, if all its equal layers are there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf

from shardc.cost.schedule_form import ScheduleForm
from shardc.cost.work import computed_flops
from shardc.passes.manager.program import Node, Program
from shardc.passes.search.calls.crossing import crossing, forward_calls
from shardc.passes.search.fold import Folded

_ROUNDS = 40
"""Bisections of the slowest stage's work."""


def forward_work(program: Program, folded: Folded) -> list[float]:
    """Return the FLOP of each call of forward, in order, also of equal layers that the program lacks."""
    return [_flops(program.nodes[number]) for number in _calls(program, folded)]


def forward_cuts(program: Program, folded: Folded) -> list[tuple[float, float]]:
    """Return, for each cut of the forward with all its equal layers, the part of its FLOP before it, and the
    bytes of all samples to send.
    """
    calls = _calls(program, folded)
    sizes = dict(
        zip(forward_calls(program), (size for _, size in crossing(program, folded.weights)), strict=False)
    )
    done = [*accumulate(_flops(program.nodes[number]) for number in calls)]
    ends = zip(calls[:-1], done[:-1], strict=True)
    return [(before / max(done[-1], 1.0), sizes.get(number, inf)) for number, before in ends]


def _calls(program: Program, folded: Folded) -> list[int]:
    """Return the numbers of forward's calls in order, those of equal layers as often as there are layers."""
    found = list[int]()
    for weight, numbers in folded.runs(forward_calls(program)):
        # A colour for each call of a layer, and the weight of all layers, or no other calls like these.
        layer = len({folded.colours[number] for number in numbers}) if weight != 1 else len(numbers)
        found += numbers[:layer] * round(weight * len(numbers) / layer)
    return found


def _flops(node: Node) -> float:
    return 0.0 if node.op.name.startswith("dist.") else computed_flops(node.spec)


def unevenness(work: Sequence[float], stages: int) -> float:
    """Return the work of the slowest of so many stages over the mean, if cuts make it as little as possible.

    A call runs in one stage.
    """
    total = sum(work)
    if not total:
        return 1.0
    done = [0.0, *accumulate(work)]
    least, most = max(max(work), total / stages), total
    for _ in range(_ROUNDS):
        middle = (least + most) / 2
        least, most = (least, middle) if _fits(done, stages, middle) else (middle, most)
    return most * stages / total


def fullest(work: Sequence[float], stages: int, form: ScheduleForm) -> float:
    """Return what the fullest rank of a pipeline holds over the mean, taken to be in proportion to its work.

    Several stages of a rank even each other out, and so may stages that are no chain.
    """
    return unevenness(work, stages) if stages > 1 and form.per_rank == 1 and form.path == 1 else 1.0


def _fits(done: Sequence[float], stages: int, most: float) -> bool:
    """Return whether stages of ``most`` work each suffice, each with as many calls as it can take."""
    at = 0
    for _ in range(stages):
        at = bisect_right(done, done[at] + most * (1 + 1e-12)) - 1
    return at == len(done) - 1


def stages_at(cuts: Sequence[float], speeds: Sequence[float]) -> list[float] | None:
    """Return the parts of the work of stages with these ``speeds`` that end at some of the ``cuts``.

    ``cuts``: part of the work before each place where stages may end. The slowest stage is as fast as it can
    be. None if there are fewer places than stages.
    """
    ends = sorted({*cuts, 0.0, 1.0})
    if len(ends) <= len(speeds):
        return None
    least, most = 1 / sum(speeds), 1 / min(speeds)
    for _ in range(_ROUNDS):
        middle = (least + most) / 2
        least, most = (least, middle) if _ends(ends, speeds, middle) is not None else (middle, most)
    found = _ends(ends, speeds, most)
    assert found is not None, "the slowest stage has time for all the work"
    return [end - start for start, end in pairwise([0.0, *found])]


def _ends(ends: Sequence[float], speeds: Sequence[float], seconds: float) -> list[float] | None:
    """Return where stages end, each with as much work as it can do in so many seconds; None if work is left
    or a stage has none.
    """
    found, at = list[float](), 0
    for later, speed in zip(reversed(range(len(speeds))), speeds, strict=True):
        most = bisect_right(ends, ends[at] + seconds * speed * (1 + 1e-12)) - 1
        end = min(most, len(ends) - 1 - later)
        if end == at:
            return None
        at = end
        found.append(ends[at])
    return found if at == len(ends) - 1 else None
