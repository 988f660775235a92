"""Shardings that each value has and that each use needs: the decisions of level 2, before reshards are
placed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.dist.time_part import join_time, space_part
from shardc.dialects.rules.rule import representable
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.manager.sum_place import sum_is
from shardc.passes.partition.assign import Request, assign, passing, without
from shardc.passes.partition.given_cuts import CUTS, layouts_under, read_cuts, read_passing
from shardc.passes.partition.storage import stored_parameters, views_of_storage

RETURN = -1
Rounds = tuple[tuple[str, int], ...]
"""Pairs of an axis and the round in which a value got it."""


@dataclass
class Demands:
    """The sharding with which each value is computed, and the shardings that its uses need.

    ``uses[v]`` lists (node, operand, sharding), with (``RETURN``, result, sharding) for the function's
    return.
    """

    made: list[Sharding]
    uses: dict[int, list[tuple[int, int, Sharding]]] = field(default_factory=lambda: defaultdict(list))


class DemandAnalysis:
    """Analysis that visits a propagated program once, in order, and chooses each call's assignment.

    ``wanted``: the sharding of each value that propagation found. ``rounds``: the rounds in which values got
    axes after the first. Default: both as propagation wrote them into the program.
    """

    def __init__(
        self,
        program: Program,
        codec: ShardingCodec,
        mesh: Mesh,
        wanted: Sequence[Sharding] | None = None,
        rounds: Mapping[int, Rounds] | None = None,
    ) -> None:
        self._program, self._codec, self._mesh = program, codec, mesh
        self._wanted = list(wanted or ())
        self._rounds = [(rounds or {}).get(value, ()) for value in range(len(self._wanted))]
        self._returned = frozenset(program.returns)
        self._refined = {v for n in program.nodes if "dist.refine" in n.op.attributes for v in n.results}
        self._views = views_of_storage(program, stored_parameters(program))
        self._memo: dict[object, tuple[list[Sharding], list[Sharding]]] = {}

    def run(self) -> Demands:
        program = self._program
        if not self._wanted:
            self._read_requests()
        # Values outside the step have no time axes, which are loops inside it.
        wanted = [self._wanted[value].without_partial() for value in program.arguments]
        demands = Demands([space_part(sharding, self._mesh).normal() for sharding in wanted])
        for number, node in enumerate(program.nodes):
            self._decide(demands, number, node)
        self._decide_returns(demands)
        return demands

    def _read_requests(self) -> None:
        program = self._program
        for position in range(len(program.arguments)):
            self._wanted.append(program.annotated(position, self._codec))
            self._rounds.append(_rounds(program.attribute(position, "dist.priorities")))
        for node in program.nodes:
            rounds = _rounds(node.op.attributes.get("dist.priorities"))
            shardings = node.op.attributes.get("dist.shardings")
            for i, value in enumerate(node.results):
                whole = Sharding.replicated(len(program.types[value].shape))
                self._wanted.append(whole if shardings is None else self._codec.read(shardings[i]))
                self._rounds.append(rounds)

    def _decide(self, demands: Demands, number: int, node: Node) -> None:
        if node.op.name in ("dist.constraint", "dist.reshard"):
            # The time axes of the value do not change.
            made, wanted = demands.made[node.operands[0]], self._wanted[node.results[0]].without_partial()
            layout = join_time(space_part(wanted, self._mesh), made, self._mesh).normal()
            demands.uses[node.operands[0]].append((number, 0, layout))
            demands.made.append(layout)
            return
        if CUTS in node.op.attributes:
            through, axes = read_passing(node, self._codec)
            needs, results = layouts_under(node.rule, read_cuts(node, self._codec))
        else:
            through, axes = self._passing(demands, node)
            layouts = self._layouts(number, node, axes)
            if layouts is None:
                through, axes = frozenset(), ()
                layouts = self._layouts(number, node, axes)
                assert layouts is not None, "an assignment is representable"
            needs, results = layouts
        terms = tuple(("sum", a) for a in axes)
        for position, (value, need) in enumerate(zip(node.operands, needs, strict=True)):
            if position in through:
                need = need.with_partial(terms).normal()
            demands.uses[value].append((number, position, need))
        for result in results:
            demands.made.append(result.with_partial((*result.partial, *terms)).normal() if terms else result)

    def _layouts(
        self, number: int, node: Node, partial: Axes
    ) -> tuple[list[Sharding], list[Sharding]] | None:
        """Return the shardings that a call needs and makes if partial sums over ``partial`` pass through it.

        None if the other splits cannot be expressed without that axis; then the sum is reduced before the
        call.
        """
        whole = self._views.get(number, frozenset())
        wanted = tuple(self._wanted[v] for v in node.values)
        rounds = tuple(self._rounds[v] for v in node.values)
        key = (id(node.rule), whole, partial, wanted, rounds)
        if key not in self._memo:
            sizes = [self._program.types[v].size_bytes for v in node.values]
            uncut = [_without(sharding, whole) for sharding in wanted]
            chosen = without(assign(node.rule, list(map(Request, uncut, rounds, sizes))), partial)
            tensors, factors = node.rule.operands + node.rule.results, node.rule.sizes
            if not all(representable(dims, chosen, factors) for dims in tensors):
                return None
            self._memo[key] = layouts_under(node.rule, chosen)
        return self._memo[key]

    def _passing(self, demands: Demands, node: Node) -> tuple[frozenset[int], Axes]:
        """Return the operands that stay partial sums through a call, and the axes.

        They stay partial if that costs nothing: they have one user, and its result is not larger. So terms
        are added before they are reduced once. A gradient that the plan splits (ZeRO-2) is reduced where it
        is computed, so that a time loop carries the split gradient. All gradients are reduced before their
        update, even if it is linear, as in SGD: then buckets overlap with the backward.
        """
        nothing = frozenset[int](), ()
        if (
            not node.rule.linear
            or sum_is("before", node.op)
            or not any(demands.made[v].partial for v in node.operands)
        ):
            return nothing
        through, axes = passing(node.rule, [demands.made[v] for v in node.operands])
        program = self._program
        values = [node.operands[i] for i in through]
        if any(len(program.users[v]) > 1 or v in self._returned or v in self._refined for v in values):
            return nothing
        if phase_of(node.op) == "optimizer" and any(self._phase(v) != "optimizer" for v in values):
            return nothing
        if node.spec.target == "aten.constant_pad_nd" or sum_is("after", node.op):
            return through, axes  # larger only by padding, or by request
        made = [type_.size_bytes for type_ in node.spec.results if type_]
        largest = max((program.types[v].size_bytes for v in values), default=0)
        return nothing if len(made) > 1 or any(size > largest for size in made) else (through, axes)

    def _phase(self, value: int) -> str:
        """Return the phase in which a value is computed; empty for an argument."""
        producer = self._program.producer[value]
        return phase_of(self._program.nodes[producer].op) if producer >= 0 else ""

    def _decide_returns(self, demands: Demands) -> None:
        program = self._program
        pairs = zip(program.returns, program.state_of_results(), strict=True)
        for position, (value, argument) in enumerate(pairs):
            attribute = program.result_attribute(position, "dist.sharding")
            if argument is not None:
                need = demands.made[argument]
            elif attribute is not None:
                need = self._codec.read(attribute).normal()
            elif program.result_key(position)[0] == "output":
                need = space_part(demands.made[value].without_partial(), self._mesh).normal()
            else:
                need = Sharding.replicated(len(program.types[value].shape))
            demands.uses[value].append((RETURN, position, need))


def _rounds(attribute: ir.Attribute | None) -> Rounds:
    named = () if attribute is None else ir.DictAttr(attribute)
    return tuple((entry.name, ir.IntegerAttr(entry.attr).value) for entry in named)


def _without(sharding: Sharding, axes: frozenset[str]) -> Sharding:
    """Return ``sharding`` without ``axes`` in its dims."""
    dims = tuple(tuple(a for a in dim if a.name not in axes) for dim in sharding.dims)
    return Sharding(dims, sharding.partial) if axes else sharding
