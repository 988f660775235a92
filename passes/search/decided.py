"""What some axes do in each call by propagation: the loop of micro-batches, and what cuts the batch."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.partition.demand import DemandAnalysis, Demands
from shardc.passes.propagate.dist_propagate import propagate, write_shardings
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import TERMS, WHOLE
from shardc.passes.search.ways import Choice, Decided, made_mark, needed_mark


def decided_choices(program: Program, mesh: Mesh, axes: SearchAxes) -> list[Decided]:
    """For each call what each axis does in it of which that follows from how the plan cuts inputs.

    It is decided alone: what a sample computes does not depend on how other axes cut it. In the update axes
    of the batch are free, to cut state. Changes what the program says of shardings.
    """
    if not axes.decided:
        return [()] * len(program.nodes)
    codec = ShardingCodec(program.module.context, mesh)
    write_shardings(program, propagate(program, codec, mesh), codec)
    demands = DemandAnalysis(program, codec, mesh).run()
    needs = _needs(demands)
    return [
        tuple(
            (axis, _choice(node, needs.get(number, {}), demands, axes.axes[axis]))
            for axis in (axes.time if phase_of(node.op) == "optimizer" else axes.decided)
        )
        for number, node in enumerate(program.nodes)
    ]


def _needs(demands: Demands) -> dict[int, dict[int, Sharding]]:
    """Call -> place of an operand -> what it needs."""
    found: dict[int, dict[int, Sharding]] = {}
    for uses in demands.uses.values():
        for number, place, sharding in uses:
            found.setdefault(number, {})[place] = sharding
    return found


def _choice(node: Node, needs: dict[int, Sharding], demands: Demands, axis: Axis) -> Choice:
    """What an axis does in a call: that with which it needs and makes what was decided."""
    wanted = [_mark(needs[place], axis) for place in range(len(node.operands))]
    made = [_mark(demands.made[value], axis) for value in node.results]
    rule = node.rule
    factors = (factor for factor in rule.factors if factor not in rule.traded)
    options: Sequence[Choice] = (None, *factors, *range(len(rule.linear)))
    for choice in options:
        if [needed_mark(rule, choice, place) for place in range(len(wanted))] != wanted:
            continue
        if [made_mark(rule, choice, dims) for dims in rule.results] == made:
            return choice
    raise AssertionError(f"{node.spec.target}: nothing needs {wanted} and makes {made}")


def _mark(sharding: Sharding, axis: Axis) -> int:
    """The dim that an axis cuts, or the mark of its terms."""
    found = (TERMS[reduction] for reduction, of in sharding.partial if of == axis)
    cut = (dim for dim, axes in enumerate(sharding.dims) if axis in axes)
    return next(found, next(cut, WHOLE))
