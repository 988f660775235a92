"""Prediction of shardings by a trial propagation in which calls do not keep their working dim whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.rules.rule import Dims, Rule, factor_axes
from shardc.dialects.rules.spatial.pads import CONSTANT
from shardc.passes.manager.attention import ATTRIBUTE
from shardc.passes.manager.program import Node, Program, same_rule
from shardc.passes.propagate.dist_propagate import propagate
from shardc.passes.propagate.split.forms import FORMS
from shardc.passes.propagate.state import PropagationState

MOVED = frozenset(
    f"aten.{name}"
    for name in (
        *("sort", "sort.stable", "argsort", "argsort.stable", "topk", "cummax", "cummin"),
        *("scatter.src", "_fft_c2c", "_fft_r2c", "_fft_c2r"),
    )
)
"""Operators that need a dim whole and have no split form; another dim can be split while they run."""

JOINS = ("aten.cat", CONSTANT)
"""Calls that may make a dim of a size that devices do not divide of one that they do."""

_SELECT = "aten.select.int"
LEAST_TURNS = 3
"""Least number of iterations of a written-out loop over a dim; a tree-shaped scan also selects two
elements.
"""


def is_walked(program: Program, node: Node) -> bool:
    """Return whether a call selects an element of a dim as part of a written-out loop over that dim."""
    if node.spec.target != _SELECT:
        return False
    users = (program.nodes[n].spec for n in program.users[node.operands[0]])
    places = {u["index"] for u in users if u.target == _SELECT and u["dim"] == node.spec["dim"]}
    return len(places) >= LEAST_TURNS


@dataclass(frozen=True)
class Foresight:
    """Predicted shardings of a program, and its scans from the end: node numbers, and the flips around
    them.
    """

    program: Program
    mesh: Mesh
    state: PropagationState
    flips: Mapping[int, tuple[Node, Node]]

    def sharding(self, value: int) -> Sharding:
        return self.state.sharding(value)

    def axes(self, node: Node, position: int) -> Axes:
        """Return the axes that split factors of an operand which the call's rule keeps whole."""
        rule, dims = node.rule, node.rule.operands[position]
        cut = factor_axes(dims, self.sharding(node.operands[position]), rule.sizes)
        return tuple(a for dim in dims for f in dim if f in rule.replicate for a in cut.get(f, ()))


def foresee(program: Program, codec: ShardingCodec, mesh: Mesh) -> Foresight | None:
    """Predict a program's shardings; None if no call keeps a dim whole that it could let be split."""
    known = FORMS.keys() | MOVED | {_SELECT, *JOINS}
    if not any(node.spec.target in known or ATTRIBUTE in node.op.attributes for node in program.nodes):
        return None
    flips = dict(_scans_from_the_end(program))
    turned = {id(node) for pair in flips.values() for node in pair}
    equal: dict[TensorType, Rule] = {}
    free: dict[int, Rule] = {}

    def freed(node: Node) -> Node:
        """Return ``node`` with a freed rule, which equal calls share."""
        if id(node) in turned:
            type_ = node.spec.tensors[0]
            return replace(node, rule=equal.setdefault(type_, same_rule(type_)))
        if node.known and (node.spec.target in FORMS or node.spec.target in MOVED):
            return replace(node, rule=free.setdefault(id(node.rule), _free(node.rule)))
        return node

    state = propagate(replace(program, nodes=[*map(freed, program.nodes)]), codec, mesh)
    return Foresight(program, mesh, state, flips)


def _free(rule: Rule) -> Rule:
    """Return ``rule`` with whole factors free. Weights do not offer axes: they follow the values that they
    scale.
    """
    whole = rule.replicate & {f for dim in rule.operands[0] for f in dim}

    def without(dims: Dims) -> Dims:
        if dims == rule.operands[0]:
            return dims
        return tuple(tuple(f for f in dim if f not in whole) for dim in dims)

    operands, results = (tuple(map(without, tensors)) for tensors in (rule.operands, rule.results))
    return replace(rule, operands=operands, results=results, replicate=rule.replicate - whole)


def _scans_from_the_end(program: Program) -> Iterator[tuple[int, tuple[Node, Node]]]:
    """Yield each ``flip(scan(flip(x)))`` along one dim with no other reader: the gradient of a scan."""
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
