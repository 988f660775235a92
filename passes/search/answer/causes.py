"""Breakdown of the seconds of a searched plan by cause."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.cost.work import flops
from shardc.passes.search.answer.answer import PASSES, PRODUCTS
from shardc.passes.search.step.step_graph import StepGraph


def causes_of(step: StepGraph, chosen: Sequence[int]) -> dict[str, float]:
    """Return the seconds of products, of passes over memory, and of exposed communication along each mesh
    axis.

    They add up to the cost of the choice. Each axis gets its part of the gradients' collectives that the
    backward does not hide.
    """
    found = {PRODUCTS: 0.0, PASSES: 0.0}
    for number, call in enumerate(step.program.nodes):
        seconds = float(step.work.seconds(number, step.ways[number])[chosen[step.call_node[number]]])
        is_product = not call.op.name.startswith("dist.") and bool(flops(call.spec))
        found[PRODUCTS if is_product else PASSES] += seconds * step.folded.weights[number]
    soon, late = _changed(step, chosen, is_late=False), _changed(step, chosen, is_late=True)
    total_s = sum(late.values())
    waited = max(0.0, step.graph.uncovered(chosen)) / total_s if total_s else 0.0
    for name in soon:
        found[name] = found.get(name, 0.0) + soon[name] + waited * late[name]
    return found


def _changed(step: StepGraph, chosen: Sequence[int], is_late: bool) -> dict[str, float]:
    """Return the seconds of changes of layout along each mesh axis; for time axes they are passes over
    memory.
    """
    names = [PASSES if n in step.axes.time else axis.name for n, axis in enumerate(step.axes.axes)]
    found = dict.fromkeys(names, 0.0)
    for change in step.changes:
        if change.when.is_late == is_late:
            made, needed = change.made, change.needed
            pair = made.layouts[chosen[made.node]], needed.layouts[chosen[needed.node]]
            for axis, seconds in step.steps(change, pair):
                found[names[axis]] += seconds * change.weight * change.times(*pair, step.axes.sizes)
    return found
