"""What every use of every value needs: the decisions of level 2, before any reshard is placed."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from torch_mlir import ir

from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.rules.rule import operand_shardings, result_shardings
from shardc.passes.manager.program import Node, Program
from shardc.passes.partition.assign import Request, assign, passing, without
from shardc.passes.partition.storage import stored_parameters, views_of_storage

RETURN = -1


@dataclass
class Demands:
    """``made[v]`` is how a value's producer leaves it; ``uses[v]`` lists (node, operand, what that use
    needs).

    The function's return counts as node ``RETURN`` with the result's position as operand.
    """

    made: list[Sharding]
    uses: dict[int, list[tuple[int, int, Sharding]]] = field(default_factory=lambda: defaultdict(list))


def edge_sharding(sharding: Sharding, mesh: Mesh) -> Sharding:
    """How a value lies outside of the step: time axes are loops inside it, so they do not count."""
    dims = tuple(tuple(a for a in dim if not mesh.is_time(a)) for dim in sharding.dims)
    return Sharding(dims).normal()


class DemandAnalysis:
    """Walks a propagated program once, in order, and decides each call's assignment."""

    def __init__(self, program: Program, codec: ShardingCodec, mesh: Mesh) -> None:
        self._program = program
        self._codec = codec
        self._mesh = mesh
        self._wanted: list[Sharding] = []
        self._rounds: list[tuple[tuple[str, int], ...]] = []
        self._returned = frozenset(program.returns)
        self._refined = {v for n in program.nodes if "dist.refine" in n.op.attributes for v in n.results}
        self._views = views_of_storage(program, stored_parameters(program))
        self._memo: dict[object, tuple[list[Sharding], list[Sharding]]] = {}

    def run(self) -> Demands:
        program = self._program
        self._read_requests()
        demands = Demands([])
        for position, value in enumerate(program.arguments):
            demands.made.append(edge_sharding(self._wanted[value], self._mesh))
            assert len(demands.made) == value + 1, f"argument {position} is not value {value}"
        for number, node in enumerate(program.nodes):
            self._decide(demands, number, node)
        self._decide_returns(demands)
        return demands

    def _read_requests(self) -> None:
        program = self._program
        for position in range(len(program.arguments)):
            attribute = program.attribute(position, "dist.sharding")
            rank = len(program.types[program.arguments[position]].shape)
            self._wanted.append(self._codec.read(attribute) if attribute else Sharding.replicated(rank))
            self._rounds.append(_rounds(program.attribute(position, "dist.priorities")))
        for node in program.nodes:
            attributes = node.op.attributes
            known = "dist.shardings" in attributes
            rounds = _rounds(attributes["dist.priorities"] if "dist.priorities" in attributes else None)
            shardings = (
                list(ir.ArrayAttr(attributes["dist.shardings"])) if known else [None] * len(node.results)
            )
            for value, attribute in zip(node.results, shardings, strict=True):
                rank = len(program.types[value].shape)
                self._wanted.append(self._codec.read(attribute) if attribute else Sharding.replicated(rank))
                self._rounds.append(rounds)

    def _decide(self, demands: Demands, number: int, node: Node) -> None:
        if node.op.name in ("dist.constraint", "dist.reshard"):
            layout = self._constrained(demands, node)
            demands.uses[node.operands[0]].append((number, 0, layout))
            demands.made.append(layout)
            return
        through, axes = self._passing(demands, node)
        needs, results = self._layouts(number, node, axes)
        terms = tuple(("sum", a) for a in axes)
        for position, (value, need) in enumerate(zip(node.operands, needs, strict=True)):
            if position in through:
                need = need.with_partial(terms).normal()
            demands.uses[value].append((number, position, need))
        for result in results:
            demands.made.append(result.with_partial((*result.partial, *terms)).normal() if terms else result)

    def _constrained(self, demands: Demands, node: Node) -> Sharding:
        """What a constraint says of devices; over time its value stays cut as it is."""
        made, wanted = demands.made[node.operands[0]], self._wanted[node.results[0]]
        times = lambda axes: tuple(a for a in axes if self._mesh.is_time(a))  # noqa: E731
        space = lambda axes: tuple(a for a in axes if not self._mesh.is_time(a))  # noqa: E731
        dims = tuple((*space(new), *times(old)) for new, old in zip(wanted.dims, made.dims, strict=True))
        return (
            Sharding(dims).with_partial(tuple(t for t in made.partial if self._mesh.is_time(t[1]))).normal()
        )

    def _layouts(self, number: int, node: Node, partial: Axes) -> tuple[list[Sharding], list[Sharding]]:
        """What a call needs and makes, where sums over ``partial`` pass through it."""
        values = (*node.operands, *node.results)
        whole = self._views.get(number, frozenset())
        key = (
            id(node.rule),
            whole,
            partial,
            tuple(self._wanted[v] for v in values),
            tuple(self._rounds[v] for v in values),
        )
        found = self._memo.get(key)
        if found is None:
            sizes = [self._program.types[v].size_bytes for v in values]
            requests = [
                Request(_without(self._wanted[v], whole), self._rounds[v], s)
                for v, s in zip(values, sizes, strict=True)
            ]
            chosen = without(assign(node.rule, requests), partial)
            needs = [s.normal() for s in operand_shardings(node.rule, chosen)]
            results = [s.normal() for s in result_shardings(node.rule, chosen)]
            found = self._memo[key] = (needs, results)
        return found

    def _passing(self, demands: Demands, node: Node) -> tuple[frozenset[int], Axes]:
        """Partial sums stay partial through a call where that costs nothing: one user, one result that is not
        larger.

        So terms meet in an addition before they are reduced, and are reduced once. A gradient that the plan
        cuts itself (ZeRO-2) is reduced where it is made, so that what a time loop carries is cut.
        """
        if not node.rule.linear or not any(demands.made[v].partial for v in node.operands):
            return frozenset(), ()
        through, axes = passing(node.rule, [demands.made[v] for v in node.operands])
        program = self._program
        values = [node.operands[i] for i in through]
        if any(len(program.users[v]) > 1 or v in self._returned or v in self._refined for v in values):
            return frozenset(), ()
        made = [program.types[v] for v, type_ in zip(node.results, node.spec.results, strict=True) if type_]
        if node.spec.target == "aten.constant_pad_nd":
            return through, axes  # larger by no more than what makes it divide
        largest = max((program.types[v].size_bytes for v in values), default=0)
        if len(made) > 1 or any(type_.size_bytes > largest for type_ in made):
            return frozenset(), ()
        return through, axes

    def _decide_returns(self, demands: Demands) -> None:
        program = self._program
        arguments = {program.argument_key(i): v for i, v in enumerate(program.arguments)}
        for position, value in enumerate(program.returns):
            key = program.result_key(position)
            if key in arguments and key != ("", ""):
                need = demands.made[arguments[key]]
            else:
                attribute = program.result_attribute(position, "dist.sharding")
                rank = len(program.types[value].shape)
                need = self._codec.read(attribute).normal() if attribute else Sharding.replicated(rank)
            demands.uses[value].append((RETURN, position, need))


def _rounds(attribute: ir.Attribute | None) -> tuple[tuple[str, int], ...]:
    if attribute is None:
        return ()
    return tuple((named.name, named.attr.value) for named in ir.DictAttr(attribute))


def _without(sharding: Sharding, axes: frozenset[str]) -> Sharding:
    """``sharding`` with no cut over ``axes``."""
    if not axes:
        return sharding
    return Sharding(
        tuple(tuple(a for a in dim if a.name not in axes) for dim in sharding.dims), sharding.partial
    )
