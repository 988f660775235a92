"""Shared gathers of values that one user reads directly and another through a view, such as a transpose."""

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
    """Let a view read its operand in the layout that another user needs, if all readers of the view allow it.

    Then one reshard replaces two, and none is added. The other user must be in the view's phase, so that no
    value is gathered earlier than before. Values ``kept`` are left out: storage that is gathered in each
    phase. Changes ``demands``, and returns the number of changed views.
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
    """Return the sharding of a view's operand that gives the result the sharding ``need``; None if there is
    none.
    """
    if need.partial:
        return None
    nothing = Sharding.replicated(len(node.rule.operands[0]))
    chosen = assignment_of(node.rule, [nothing, need])
    (before,), (after,) = node.rule.operand_shardings(chosen), node.rule.result_shardings(chosen)
    return before.normal() if after.normal() == need else None
