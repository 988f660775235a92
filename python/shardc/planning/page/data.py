"""Data of the page as JSON: the prices of all plans, and the best plan's placement, memory and timeline."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.backends.torch.memory.curve import Curve
from shardc.cost.cluster.mapping import Placement
from shardc.cost.step.on_cluster import costs_on
from shardc.cost.step.step_time import stage_places, timeline_of_step
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.planning.memory import RankMemory
from shardc.planning.page.collectives import collective_rows
from shardc.planning.page.points import pair_points, slider_points
from shardc.planning.page.tree import module_tree
from shardc.planning.price import Price
from shardc.planning.question import Question
from shardc.planning.verdict import CAUSES
from shardc.planning.write_json import prices_json
from shardc.report.source_lines import remark_text, shown
from shardc.runtime.check import Json

PAGE_SCHEMA = 1
PLANS = 100
"""Maximum number of plans in the comparison."""
SPANS = 6000
"""Maximum number of a pipeline's actions in the timeline. Ranks beyond it are left out."""


def page_json(question: Question, prices: Sequence[Price]) -> Json:
    """Return the page's data. ``schema``: version of its format; ``prices.schema``: that of the prices."""
    ordered = sorted(prices, key=lambda price: price.order)
    best = ordered[0]
    return {
        "schema": PAGE_SCHEMA,
        "prices": prices_json(question, ordered[:PLANS]),
        "left_out": max(0, len(ordered) - PLANS),
        "words": dict(CAUSES),
        "mesh": _mesh(best),
        "work": best.priced.work.render(),
        "remarks": [remark_text(r) for r in (*best.priced.remarks, *best.priced.work.remarks())],
        "memory": [_curve(rank) for rank in best.priced.memory],
        "tree": module_tree(best.priced.placement),
        "collectives": collective_rows(best),
        "timeline": _timeline(best),
        "what_if": slider_points(best),
        "what_if_pairs": pair_points(best),
    }


def _curve(rank: RankMemory) -> Json:
    """Return memory over time as columns of moments; ``places`` are [phase, source line]."""
    curve = Curve() if isinstance(rank.peak, PeakUnknown) else rank.peak.curve
    moments = curve.moments
    return {
        "rank": rank.rank,
        "unknown": str(rank.peak.fields["problem"]) if isinstance(rank.peak, PeakUnknown) else "",
        "places": [[place.phase, shown(place.where)] for place in curve.places],
        "made": [moment.made for moment in moments],
        "bytes": [moment.size_bytes for moment in moments],
        "place": [moment.place for moment in moments],
        "held": [[number for pair in moment.held for number in pair] for moment in moments],
    }


def _mesh(price: Price) -> Json:
    """Return the axes, and for each set of axes a device's bytes and the links that carry them."""
    placement = Placement.of(price.cluster, price.priced.candidate.mesh)
    axes = [{"name": name, "size": size} for name, size in price.priced.candidate.mesh.items()]
    space = [name for name, _ in placement.axes]
    sets = {(name,): 0.0 for name in space} | {
        axes: size for axes, size in price.priced.sent.items() if set(axes) <= {*space}
    }
    if price.priced.pipe:
        sets[price.priced.pipe,] = _messages_bytes(price)
    return {
        "axes": axes,
        "pipe": price.priced.pipe,
        "sent": [_links(placement, *item) for item in sets.items()],
    }


def _links(placement: Placement, axes: tuple[str, ...], size: float) -> Json:
    spans = placement.links(axes).spans
    levels = [{"level": s.level.name, "ways": s.ways, "bytes_s": s.member_bytes_s} for s in spans]
    return {"axes": list(axes), "bytes": size, "links": levels}


def _messages_bytes(price: Price) -> float:
    """Return the largest number of bytes that a pipeline's rank sends: activations and their gradients, and
    activations that another rank keeps.
    """
    work, schedule = price.priced.step, price.priced.schedule
    if schedule is None:
        return 0.0
    sums, places = dict.fromkeys(range(schedule.ranks), 0.0), stage_places(schedule)
    count = schedule.micro_batches / schedule.slices / len(schedule.routes)
    for stage, rank in schedule.rank_of.items():
        place = places[stage]
        before = sum(work.stages[other].sent_bytes for other in schedule.graph.reads[place])
        to = max(1, len(schedule.graph.readers[place]))
        sums[rank] += count * (to * work.stages[place].sent_bytes + before)
    for eviction in schedule.evictions:  # there, and back
        sums[schedule.rank_of[eviction.stage]] += work.stages[places[eviction.stage]].kept_bytes
        sums[eviction.rank] += work.stages[places[eviction.stage]].kept_bytes
    return max(sums.values())


def _timeline(price: Price) -> Json | None:
    """Return the actions of each pipeline rank: [kind, stage, micro-batch, start, end], in seconds."""
    priced = price.priced
    if priced.schedule is None:
        return None
    costs = costs_on(price.cluster, priced.candidate.mesh, priced.pipe)
    timeline = timeline_of_step(priced.step, costs, priced.schedule)
    ranks, drawn = [], 0
    for spans in timeline.spans:
        drawn += len(spans)
        if ranks and drawn > SPANS:
            break
        rounded = ((s.action, round(s.start_s, 6), round(s.end_s, 6)) for s in spans)
        ranks.append([[a.kind, a.stage, a.micro_batch, start, end] for a, start, end in rounded])
    return {
        "ranks": ranks,
        "all_ranks": len(timeline.spans),
        "step_s": timeline.step_s,
        "bubble": timeline.bubble_rate,
    }
