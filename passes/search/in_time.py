"""What the loop of micro-batches does in each call: what propagation says, whichever devices cut it."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.manager.program import Node, Program
from shardc.passes.partition.demand import DemandAnalysis, Demands
from shardc.passes.propagate.dist_propagate import propagate, write_shardings
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import TERMS, WHOLE
from shardc.passes.search.ways import Choice, made_mark, needed_mark

_NOTHING: tuple[Choice, ...] = ()


def choices_in_time(program: Program, mesh: Mesh, axes: SearchAxes) -> list[tuple[Choice, ...]]:
    """For each call what each axis of time does in it, from how the plan cuts inputs over time.

    It is decided alone: what a micro-batch computes does not depend on how devices cut it. Changes what the
    program says of shardings.
    """
    if not axes.time:
        return [_NOTHING] * len(program.nodes)
    codec = ShardingCodec(program.module.context, mesh)
    write_shardings(program, propagate(program, codec, mesh), codec)
    demands = DemandAnalysis(program, codec, mesh).run()
    needs = _needs(demands)
    times = [axes.axes[number] for number in axes.time]
    return [
        tuple(_choice(node, needs.get(number, {}), demands, axis) for axis in times)
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
