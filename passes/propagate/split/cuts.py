"""Which calls will be cut along the dim that they work along: propagation on the side, as if they could be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.rules.rule import Dims, Rule, factor_axes
from shardc.passes.manager.program import Node, Program
from shardc.passes.propagate.dist_propagate import propagate
from shardc.passes.propagate.split.forms import FORMS, Form
from shardc.passes.propagate.state import PropagationState


@dataclass(frozen=True)
class Cut:
    """A call to rewrite, cut ``ways`` ways.

    Of a scan from the end ``flips`` are the two calls around it, whose results nobody else reads.
    """

    node: Node
    form: Form
    ways: int
    flips: tuple[Node, Node] | None = None


def find_cuts(program: Program, codec: ShardingCodec, mesh: Mesh) -> list[Cut]:
    """The calls with a form that devices will cut, in program order."""
    flips = dict(_reversed_scans(program))
    turned = {id(node) for pair in flips.values() for node in pair}
    chosen = {n for n, node in enumerate(program.nodes) if node.spec.target in FORMS or id(node) in turned}
    if not any(program.nodes[n].spec.target in FORMS for n in chosen):
        return []
    rules: dict[int, Rule] = {}
    nodes = [
        replace(node, rule=rules.setdefault(id(node.rule), _free(node.rule))) if n in chosen else node
        for n, node in enumerate(program.nodes)
    ]
    state = propagate(replace(program, nodes=nodes), codec, mesh)
    return list(_find(program, state, mesh, flips))


def _find(
    program: Program, state: PropagationState, mesh: Mesh, flips: Mapping[int, tuple[Node, Node]]
) -> Iterator[Cut]:
    for number, node in enumerate(program.nodes):
        form = FORMS.get(node.spec.target)
        if form is None or not node.known or node.spec.tensors[0].dtype.is_complex:
            continue
        axes = _axes(node, state)
        if form.takes_blocks and any(mesh.is_time(a) for a in axes):
            continue
        ways = prod(a.size for a in axes if not mesh.is_time(a))
        if ways > 1 and form.fits(node.spec, ways):
            yield Cut(node, form, ways, flips.get(number))


def _axes(node: Node, state: PropagationState) -> Axes:
    """The axes that cut what must be whole in the first operand, or in another of its dims."""
    rule = node.rule
    whole = _whole(rule)
    most: Axes = ()
    for value, dims in zip(node.operands, rule.operands, strict=True):
        if dims == rule.operands[0]:
            cut = factor_axes(dims, state.sharding(value), rule.sizes)
            axes = tuple(a for f in rule.sizes if f in whole for a in cut.get(f, ()))
            most = max(most, axes, key=lambda found: prod(a.size for a in found))
    return most


def _whole(rule: Rule) -> frozenset[str]:
    """The factors of the first operand that must be whole."""
    return rule.replicate & {f for dim in rule.operands[0] for f in dim}


def _free(rule: Rule) -> Rule:
    """``rule`` as if what must be whole could be cut, but by weights: they follow what they scale."""
    whole = _whole(rule)

    def without(dims: Dims) -> Dims:
        if dims == rule.operands[0]:
            return dims
        return tuple(tuple(f for f in dim if f not in whole) for dim in dims)

    operands, results = (tuple(map(without, tensors)) for tensors in (rule.operands, rule.results))
    return replace(rule, operands=operands, results=results, replicate=rule.replicate - whole)


def _reversed_scans(program: Program) -> Iterator[tuple[int, tuple[Node, Node]]]:
    """``flip(scan(flip(x)))`` along one dim, by the scan's number."""
    for number, node in enumerate(program.nodes):
        form = FORMS.get(node.spec.target)
        if form is None or not form.scans:
            continue
        users, producer = program.users[node.results[0]], program.producer[node.operands[0]]
        if len(users) != 1 or producer < 0 or node.results[0] in program.returns:
            continue
        around = program.nodes[producer], program.nodes[users[0]]
        if all(_flips(other, node) for other in around):
            yield number, around


def _flips(node: Node, scan: Node) -> bool:
    if node.spec.target != "aten.flip":
        return False
    rank = len(scan.spec.tensors[0].shape)
    return [d % rank for d in node.spec["dims"]] == [scan.spec["dim"] % rank]
