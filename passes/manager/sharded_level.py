"""Verifier of level 2: the shardings of each call's operands and results must agree with its rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch_mlir import ir

from shardc.diagnostics.dialects.levels import LevelBroken
from shardc.diagnostics.dialects.sharding import NoSuchAxis
from shardc.dialects.dist.check import check_sharding
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingAttr, ShardingCodec
from shardc.dialects.location import source_line
from shardc.dialects.rules.rule import Assignment, Rule, assignment_of, dims_under, representable
from shardc.passes.manager.program import Node, Program


class ShardedLevel:
    """Checker that reads the shardings of all values in order, and compares each call with its rule."""

    def __init__(self, program: Program, mesh: Mesh) -> None:
        self._program, self._mesh = program, mesh
        self._codec = ShardingCodec(program.module.context, mesh)
        self._shardings: list[Sharding] = []
        self._attributes: list[ir.Attribute] = []

    def check(self) -> None:
        """Check the program. Raises LevelBroken at the first value or call that breaks the level."""
        program = self._program
        for position in range(len(program.arguments)):
            name = program.argument_key(position)[1] or position
            self._read(program.attribute(position, "dist.sharding"), f"argument {name}", None)
            if problem := edge_problem(self._shardings[-1], self._mesh):
                raise LevelBroken(level=2, problem=f"argument {name} {problem}")
        right: set[tuple[int, tuple[ir.Attribute, ...]]] = set()  # layers repeat the same calls
        for node in program.nodes:
            self._read_results(node)
            key = (id(node.rule), tuple(self._attributes[v] for v in node.values))
            if key not in right and (problem := self._problem(node)):
                raise LevelBroken(level=2, problem=problem, where=source_line(node.op.location))
            right.add(key)
        self._check_returns()

    def _read_results(self, node: Node) -> None:
        array = node.op.attributes.get("dist.shardings")
        given = list(array) if isinstance(array, ir.ArrayAttr) else []
        if len(given) != len(node.results):
            problem = f"{node.spec.target} has {len(given)} shardings for {len(node.results)} results"
            raise LevelBroken(level=2, problem=problem, where=source_line(node.op.location))
        for attribute in given:
            self._read(attribute, node.spec.target, node.op)

    def _problem(self, node: Node) -> str | None:
        shardings = [self._shardings[v] for v in node.values]
        if node.op.name == "dist.reshard":
            return self._reshard_problem(node, *shardings)
        if node.op.name == "dist.constraint":
            source, target = (s.normal() for s in shardings)
            return None if source == target else f"dist.constraint gives {target} of what is {source}"
        found = call_problem(node.rule, shardings[: len(node.operands)], shardings[len(node.operands) :])
        return found and f"{found[0]} of {node.spec.target} {found[1]}"

    def _reshard_problem(self, node: Node, source: Sharding, target: Sharding) -> str | None:
        """Return the problem of a reshard: its result has another sharding, or no chain of steps leads to
        it.
        """
        made = self._codec.read(node.op.attributes["sharding"])
        if made.normal() != target.normal():
            return f"dist.reshard makes {made}, but its result is {target}"
        new = {t for t in target.normal().partial if self._mesh.is_time(t[1])} - set(source.normal().partial)
        return (
            f"dist.reshard makes terms of iterations of a whole value: {source} to {target}" if new else None
        )

    def _check_returns(self) -> None:
        """Check that results have their stated shardings, and state that of the argument that it replaces."""
        program = self._program
        for position, (value, argument) in enumerate(
            zip(program.returns, program.state_of_results(), strict=True)
        ):
            attribute = program.result_attribute(position, "dist.sharding")
            if attribute is None:
                continue
            said, found = self._codec.read(attribute).normal(), self._shardings[value].normal()
            problem = edge_problem(said, self._mesh)
            if said != found:
                problem = f"is {found}, but the step says {said}"
            elif argument is not None and said != self._shardings[argument].normal():
                problem = f"is {said}, but the state that it replaces is {self._shardings[argument]}"
            if problem:
                raise LevelBroken(level=2, problem=f"result {position} {problem}")

    def _read(self, attribute: ir.Attribute | None, what: str, op: ir.Operation | None) -> None:
        """Add the next value's sharding. Raises LevelBroken."""
        if not isinstance(attribute, ShardingAttr):
            problem = f"{what} has no #dist.sharding"
        elif wrong := self._add(attribute):
            problem = f"the sharding of {what}: {wrong}"
        else:
            return
        where = None if op is None else source_line(op.location)
        raise LevelBroken(level=2, problem=problem, where=where)

    def _add(self, attribute: ShardingAttr) -> str | None:
        """Add the next value's sharding, or return its problem."""
        shape = self._program.types[len(self._shardings)].shape
        try:
            sharding = self._codec.read(attribute)
        except NoSuchAxis as error:
            return error.template.format(**error.fields)
        self._shardings.append(sharding)
        self._attributes.append(attribute)
        problem = check_sharding(sharding, shape, self._mesh)
        if problem is None and not sharding.divides(shape):
            return f"{sharding} does not divide {list(shape)}"
        return problem


def edge_problem(sharding: Sharding, mesh: Mesh) -> str | None:
    """Return the problem of an argument's or result's layout, which must have no time axes and no terms."""
    if sharding.partial:
        return f"is partial outside of the step: {sharding}"
    if any(mesh.is_time(axis) for axis in sharding.used):
        return f"is cut by iterations outside of the step: {sharding}"
    return None


def call_problem(
    rule: Rule, operands: Sequence[Sharding], results: Sequence[Sharding]
) -> tuple[str, str] | None:
    """Return the first tensor whose sharding contradicts the call's rule, and the problem; None if all agree.

    One assignment of axes to factors must explain all operands and results. A result is partial over the axes
    of reduced factors that it lacks, and over the axes of terms in operands in which the call is linear. No
    other operand may be partial.
    """
    assignment = assignment_of(rule, (*operands, *results))
    if problem := _assignment_problem(rule, assignment):
        return "the cut", problem
    for name, dims, sharding in _tensors(rule, operands, results):
        if Sharding(dims_under(dims, assignment)).normal().dims != sharding.normal().dims:
            return name, f"is {sharding}, which does not fit its rule {rule}"
    if problem := _operand_terms_problem(rule, operands, assignment):
        return problem
    through = next((s.partial for s in operands if s.partial), ())
    made = rule.result_shardings(assignment)
    for i, (result, wanted) in enumerate(zip(results, made, strict=True)):
        expected = wanted.with_partial((*wanted.partial, *through)).normal()
        if result.normal().partial != expected.partial:
            return f"result {i}", f"is {result}, but its rule {rule} makes {expected}"
    return None


def _assignment_problem(rule: Rule, assignment: Assignment) -> str | None:
    for factor, axes in assignment.items():
        if factor in rule.replicate:
            return f"has factor {factor} cut, which its rule {rule} keeps whole"
        others = [a for f, cut in assignment.items() if f != factor for a in cut]
        if any(axis.overlaps(other) for axis in axes for other in others):
            return f"has factor {factor} and another cut by the same axis, under its rule {rule}"
    for dims in rule.operands + rule.results:
        if not representable(dims, assignment, rule.sizes):
            return f"has an inner factor of a dim cut, and an outer one not as far, under its rule {rule}"
    return None


def _operand_terms_problem(
    rule: Rule, operands: Sequence[Sharding], assignment: Assignment
) -> tuple[str, str] | None:
    """Return the problem of a call's partial operands, or None."""
    partial = [i for i, s in enumerate(operands) if s.partial]
    if not partial:
        return None
    first, terms = f"operand {partial[0]}", operands[partial[0]].normal().partial
    if frozenset(partial) not in rule.linear or any(kind != "sum" for kind, _ in terms):
        return first, f"is {operands[partial[0]]}: the call is not linear in operands {partial}, reduce first"
    for i in partial:
        if operands[i].normal().partial != terms:
            return f"operand {i}", f"is {operands[i]}, but {first} is {operands[partial[0]]}"
    cut = [a for axes in assignment.values() for a in axes]
    if any(a.overlaps(b) for _, a in terms for b in cut):
        return first, f"is {operands[partial[0]]}, but the same axis cuts a dim of another tensor"
    return None


def _tensors(
    rule: Rule, operands: Sequence[Sharding], results: Sequence[Sharding]
) -> Iterator[tuple[str, tuple[tuple[str, ...], ...], Sharding]]:
    """Yield (title, factors, sharding) of each tensor of a call."""
    for i, (dims, sharding) in enumerate(zip(rule.operands, operands, strict=True)):
        yield f"operand {i}", dims, sharding
    for i, (dims, sharding) in enumerate(zip(rule.results, results, strict=True)):
        yield f"result {i}", dims, sharding
