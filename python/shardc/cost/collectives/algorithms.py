"""Times of collectives by algorithm (Thakur, Rabenseifner, Gropp 2005; Chan et al. 2007; NCCL).

A function takes the kind of a collective, the spans of a group (innermost first) and the bytes that each
member holds before it, and returns seconds. A step takes at least its level's latency. A ring's steps overlap
with its transfers, so a ring takes the longer of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, log2, prod
from typing import Annotated

from shardc.cost.cluster.mapping import Span
from shardc.cost.collective import sent_bytes
from shardc.cost.origin import Measured, Published

Spans = Sequence[Span]
TREE_PART: Annotated[float, Published("NCCL 2.19, src/graph/tuning.cc: 0.5 to 0.9, by bytes")] = 0.75
"""Share of a ring's rate that trees reach."""
DIRECT_STEPS: Annotated[
    float, Measured("4 Gloo processes on 2 cores, over a step of a ring", "2026-11-30: 2.7")
] = 2.7
"""Latencies of a direct exchange: each member is scheduled to send, and again when all others have sent."""
PHASES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1}
"""How often a ring goes round."""


def ways_of(spans: Spans) -> int:
    return prod(span.ways for span in spans)


def whole_bytes(kind: str, ways: int, local_bytes: float) -> float:
    """Return the size of the tensor that is gathered, reduced or scattered."""
    return local_bytes * (ways if kind == "all_gather" else 1)


def ring_bytes_s(spans: Spans) -> float:
    """Return the rate of rings through all members.

    A part has as many rings to another part as members, each on links of its own. So the level whose parts
    send the least limits the rate.
    """
    return min(span.member_bytes_s * span.inside for span in spans)


def ring(kind: str, spans: Spans, local_bytes: float) -> float:
    """Return the time of rings through all members, along which pieces of the tensor are pipelined."""
    ways, phases, ramp = ways_of(spans), PHASES[kind], spans[0].level.ramp
    steps = ways - 1 if kind == "broadcast" else phases * (ways - 1)
    sent = sent_bytes(kind, ways, local_bytes) * (1 + phases * ramp.extra_steps / (2 * steps))
    latency_s = phases * sum(hops * span.level.latency_s for hops, span in _hops(spans))
    return max(latency_s, (sent + _filling_bytes(kind, spans, local_bytes)) / ring_bytes_s(spans))


def _filling_bytes(kind: str, spans: Spans, local_bytes: float) -> float:
    """Return the bytes that could be sent while a ring's pipeline fills, up to a limit (decision 76)."""
    ways, ramp = ways_of(spans), spans[0].level.ramp
    filled = ramp.fill * PHASES[kind] / 2 * (ways - 1) * whole_bytes(kind, ways, local_bytes)
    return min(filled, ramp.fill_bytes)


def _hops(spans: Spans) -> list[tuple[int, Span]]:
    """Return the hops at each level for a ring that passes through a whole part before it leaves it."""
    return [((span.ways - 1) * ways_of(spans[at + 1 :]), span) for at, span in enumerate(spans)]


def tree(kind: str, spans: Spans, local_bytes: float) -> float:
    """Return the time of chains in innermost parts with double binary trees over them.

    Sources: Sanders et al. 2009; NCCL 2.4.
    """
    hops = [span.ways - 1 if span.is_innermost else ceil(log2(span.ways)) for span in spans]
    latency_s = sum(n * span.level.latency_s for n, span in zip(hops, spans, strict=True))
    sent = local_bytes * PHASES[kind] + _filling_bytes(kind, spans[:1], local_bytes)
    return max(PHASES[kind] * latency_s, sent / (TREE_PART * ring_bytes_s(spans)))


def two_level(kind: str, spans: Spans, local_bytes: float) -> float:
    """Return the time of a scatter in innermost parts, an exchange between parts, and a gather."""
    inner, outer = spans[:1], spans[1:]
    if not outer:
        return pairwise(kind, inner, local_bytes) if kind == "all_to_all" else ring(kind, inner, local_bytes)
    if kind == "all_to_all":
        return pairwise(kind, inner, local_bytes) + two_level(kind, _alone(outer), local_bytes)
    ways = inner[0].ways
    if kind == "all_gather":
        return two_level(kind, _alone(outer), local_bytes) + ring(kind, inner, local_bytes * ways_of(outer))
    scattered = ring("reduce_scatter", inner, local_bytes)
    rest = two_level(kind, _alone(outer), local_bytes / ways)
    gathered = ring("all_gather", inner, local_bytes / ways) if kind == "all_reduce" else 0.0
    return scattered + rest + gathered


def _alone(spans: Spans) -> Spans:
    """Return the spans for members of equal place: one member of each part."""
    first = spans[0].inside
    return [replace(s, inside=s.inside // first, groups=s.groups * first) for s in spans]


def torus(kind: str, spans: Spans, local_bytes: float) -> float:
    """Return the time of a torus.

    Each part of the tensor goes through the rings in another order, all at once.
    """
    parts = len(spans)
    orders = [[*spans[at:], *spans[:at]] for at in range(parts)]
    stages = zip(*(_torus_stages(kind, order, local_bytes / parts) for order in orders), strict=True)
    return sum(max(stage) for stage in stages)


def _torus_stages(kind: str, order: Spans, local_bytes: float) -> list[float]:
    """Return the seconds of each stage for one part of the tensor."""
    sizes = [1, *(ways_of(order[: at + 1]) for at in range(len(order)))]
    alone = [[_lone(span)] for span in order]
    scatter = [ring("reduce_scatter", s, local_bytes / n) for s, n in zip(alone, sizes, strict=False)]
    if kind == "reduce_scatter":
        return scatter
    held = local_bytes / (ways_of(order) if kind == "all_reduce" else 1)
    gather = [
        ring("all_gather", alone[at], held * ways_of(order[at + 1 :])) for at in reversed(range(len(order)))
    ]
    return gather if kind == "all_gather" else scatter + gather


def _lone(span: Span) -> Span:
    return replace(span, inside=1, groups=span.groups * span.inside)


def halving_doubling(kind: str, spans: Spans, local_bytes: float) -> float:
    """Return the time of exchanging halves with ever more distant partners; members must be powers of two."""
    phases, steps_s, held = PHASES[kind], 0.0, whole_bytes(kind, ways_of(spans), local_bytes)
    for span in map(_lone, spans):
        steps_s += log2(span.ways) * span.level.latency_s
        steps_s += held * (span.ways - 1) / span.ways / span.member_bytes_s
        held /= span.ways
    return phases * steps_s


def pairwise(kind: str, spans: Spans, local_bytes: float) -> float:
    """Return the time of each member sending its part to each other; all levels carry theirs at once."""
    ways, below, steps_s, slowest_s = ways_of(spans), 1, 0.0, 0.0
    for span in spans:
        peers = below * (span.ways - 1)
        steps_s += peers * span.level.latency_s
        detour = max(1.0, span.ways / 4) if span.level.topology in ("ring", "torus") else 1.0
        slowest_s = max(slowest_s, detour * local_bytes * peers / ways / span.member_bytes_s)
        below *= span.ways
    return max(steps_s, slowest_s)


def direct(kind: str, spans: Spans, local_bytes: float) -> float:
    """Return the time of each member sending to all others at once, as ``runtime/comm/direct.py`` does.

    An all-reduce sends whole tensors, and each member adds them.
    """
    ways = ways_of(spans)
    part = local_bytes / (ways if kind in ("reduce_scatter", "all_to_all") else 1)
    latency_s, below, slowest_s = max(span.level.latency_s for span in spans), 1, 0.0
    for span in spans:
        slowest_s = max(slowest_s, part * below * (span.ways - 1) / span.member_bytes_s)
        below *= span.ways
    return max(DIRECT_STEPS * latency_s, slowest_s)


def point_to_point(kind: str, spans: Spans, local_bytes: float) -> float:
    """Return the time of one message across the outermost links."""
    slowest = min(span.member_bytes_s for span in spans)
    return max(span.level.latency_s for span in spans) + local_bytes / slowest


Seconds = Callable[[str, Spans, float], float]
ALGORITHMS: dict[str, tuple[Seconds, tuple[str, ...]]] = {
    "ring": (ring, ("all_reduce", "all_gather", "reduce_scatter", "broadcast")),
    "tree": (tree, ("all_reduce", "broadcast")),
    "two-level": (two_level, ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
    "torus": (torus, ("all_reduce", "all_gather", "reduce_scatter")),
    "halving-doubling": (halving_doubling, ("all_reduce", "all_gather", "reduce_scatter")),
    "pairwise": (pairwise, ("all_to_all",)),
    "direct": (direct, ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
    "point-to-point": (point_to_point, ("permute", "exchange")),
}
"""Algorithms with their functions and the kinds of collectives that they support."""


def applies(name: str, kind: str, spans: Spans) -> bool:
    """Return whether an algorithm supports a kind of collective over such spans."""
    if kind not in ALGORITHMS[name][1]:
        return False
    topologies = {span.level.topology for span in spans}
    if name == "torus":
        return len(spans) > 1 and topologies <= {"ring", "torus"}
    if name == "halving-doubling":
        powers = all(span.ways & (span.ways - 1) == 0 for span in spans)
        return powers and topologies <= {"switch", "tree", "bus"}
    if name == "direct":
        return not topologies & {"ring", "torus"}
    if name == "tree":
        return not all(span.is_innermost for span in spans)
    return name != "two-level" or len(spans) > 1
