"""Values of which one user needs a view (mostly the transpose): gathered once, then viewed."""

from __future__ import annotations

from collections.abc import Collection

from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding
from shardc.dialects.dist.time_part import time_dims
from shardc.dialects.rules.rule import assignment_of
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.partition.demand import RETURN, Demands
from shardc.passes.partition.storage import VIEWS


def share_views(program: Program, demands: Demands, kept: Collection[int], mesh: Mesh) -> int:
    """Let views read their operand as another user needs it, where all readers of the view need just that.

    So of two reshards one is left, and none is added. The other user is of the view's phase, so that nothing
    is gathered sooner than it was. Values ``kept`` stay as they are: storage that is gathered in each phase
    anew. Changes ``demands``; returns how many views it changed.
    """
    count = 0
    for number in reversed(range(len(program.nodes))):
        node = program.nodes[number]
        if node.spec.target not in VIEWS or len(node.operands) != 1 or len(node.results) != 1:
            continue
        value, view = node.operands[0], node.results[0]
        if value in kept or view in kept:
            continue
        need = _only_need(demands, view)
        before = _before(node, need) if need else None
        if not need or not before or need == demands.made[view] or before == demands.made[value]:
            continue
        phase = phase_of(node.op)
        users = [(u, n) for u, _, n in demands.uses[value] if u not in (number, RETURN)]
        others = [n for u, n in users if phase_of(program.nodes[u].op) == phase]
        if before not in others or time_dims(need, mesh) != time_dims(demands.made[view], mesh):
            continue
        demands.uses[value] = [(u, at, before if u == number else n) for u, at, n in demands.uses[value]]
        demands.made[view] = need
        count += 1
    return count


def _only_need(demands: Demands, value: int) -> Sharding | None:
    needs = {need for _, _, need in demands.uses[value]}
    return next(iter(needs)) if len(needs) == 1 else None


def _before(node: Node, need: Sharding) -> Sharding | None:
    """How a view's operand must lie for its result to be as needed; None where no blocks say so."""
    if need.partial:
        return None
    nothing = Sharding.replicated(len(node.rule.operands[0]))
    chosen = assignment_of(node.rule, [nothing, need])
    (before,), (after,) = node.rule.operand_shardings(chosen), node.rule.result_shardings(chosen)
    return before.normal() if after.normal() == need else None
