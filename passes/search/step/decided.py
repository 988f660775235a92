"""Choices of some axes that propagation decides for each call: time axes, and axes that split the batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.partition.demand import DemandAnalysis, Demands, Rounds
from shardc.passes.propagate.dist_propagate import propagate
from shardc.passes.propagate.state import PropagationState
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import TERMS, WHOLE
from shardc.passes.search.ways import Choice, Decided, made_mark, needed_mark


@dataclass(frozen=True)
class DecidedChoices:
    """Choices of axes that follow from the plan's sharding of inputs, for each call.

    ``sizes``: of the axes that split dims. ``cut``: sizes of dims, with the names of the axes that split
    each; None if a part of an axis does.
    """

    choices: Sequence[Decided]
    sizes: Mapping[str, int]
    cut: Collection[tuple[int, tuple[str, ...]]] | None

    def hold_on(self, sizes: Mapping[str, int]) -> bool:
        """Return whether the same follows on a mesh with axes of the same names, but of other ``sizes``.

        Propagation compares sizes of axes only with sizes of dims. If an axis grows and still divides, but
        does not fill, each dim that it splits, the result is the same.
        """
        if self.cut is None or any(sizes[name] % size for name, size in self.sizes.items()):
            return False
        split = ((size, prod(sizes[name] for name in names)) for size, names in self.cut)
        return all(size % ways == 0 and size > ways for size, ways in split)


def decided_choices(program: Program, mesh: Mesh, axes: SearchAxes) -> DecidedChoices:
    """Return the choices that are decided on a mesh.

    These axes are propagated alone, because the computation of a sample does not depend on other axes. In the
    update, axes of the batch are free, so that they can split state.
    """
    codec = ShardingCodec(program.module.context, mesh)
    state = propagate(program, codec, mesh)
    wanted = [state.sharding(value).closed() for value in range(len(program.types))]
    if not axes.decided:
        return _with_cuts(program, mesh, [()] * len(program.nodes), wanted)
    demands = DemandAnalysis(program, codec, mesh, wanted, _rounds(program, state)).run()
    needs, known = _needs(demands), dict[object, Choice]()

    def choice(number: int, node: Node, axis: int) -> Choice:
        """Return the choice of an axis in a call; calls with the same rule and marks share it."""
        asked, of = needs.get(number, {}), axes.axes[axis]
        read = [_mark(asked[place], of) for place in range(len(node.operands))]
        made = [_mark(demands.made[value], of) for value in node.results]
        key = id(node.rule), tuple(read), tuple(made)
        if key not in known:
            known[key] = _choice(node, read, made)
        return known[key]

    choices = [
        tuple(
            (axis, choice(number, node, axis))
            for axis in (axes.time if phase_of(node.op) == "optimizer" else axes.decided)
        )
        for number, node in enumerate(program.nodes)
    ]
    return _with_cuts(program, mesh, choices, wanted)


def _with_cuts(
    program: Program, mesh: Mesh, choices: Sequence[Decided], wanted: Sequence[Sharding]
) -> DecidedChoices:
    """Add the dims that propagation split."""
    cut = {
        (size, dim)
        for type_, sharding in zip(program.types, wanted, strict=True)
        for size, dim in zip(type_.shape, sharding.dims, strict=True)
        if dim
    }
    used = {axis for _, dim in cut for axis in dim}
    sizes = {axis.name: axis.size for axis in used}
    if any(axis != mesh.whole(axis.name) for axis in used):
        return DecidedChoices(choices, sizes, None)
    return DecidedChoices(choices, sizes, {(size, tuple(axis.name for axis in dim)) for size, dim in cut})


def _rounds(program: Program, state: PropagationState) -> dict[int, Rounds]:
    """Return the rounds in which arguments, or any result of a call, got axes after the first."""
    found: dict[int, dict[str, int]] = {}
    for (value, axis), priority in state.priority.items():
        node = program.producer[value]
        for other in (value,) if node < 0 else program.nodes[node].results:
            found.setdefault(other, {})[axis] = priority
    return {value: tuple(sorted(of.items())) for value, of in found.items()}


def _needs(demands: Demands) -> dict[int, dict[int, Sharding]]:
    """Return call -> operand's position -> the sharding that it needs."""
    found: dict[int, dict[int, Sharding]] = {}
    for uses in demands.uses.values():
        for number, place, sharding in uses:
            found.setdefault(number, {})[place] = sharding
    return found


def _choice(node: Node, wanted: list[int], made: list[int]) -> Choice:
    """Return the choice with which a call's operands and results have these marks.

    None, which splits nothing, if parts of the axis split several dims, as where a view joins them to one.
    """
    rule = node.rule
    factors = (factor for factor in rule.factors if factor not in rule.traded)
    options: Sequence[Choice] = (None, *factors, *range(len(rule.linear)))
    for choice in options:
        if [needed_mark(rule, choice, place) for place in range(len(wanted))] != wanted:
            continue
        if [made_mark(rule, choice, dims) for dims in rule.results] == made:
            return choice
    return None


def _mark(sharding: Sharding, axis: Axis) -> int:
    """Return the dim that an axis splits, or the mark of its terms."""
    found = (TERMS[reduction] for reduction, of in sharding.partial if of == axis)
    cut = (dim for dim, axes in enumerate(sharding.dims) if axis in axes)
    return next(found, next(cut, WHOLE))
