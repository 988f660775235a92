"""Reordering of sums: terms that are partial over the same axes are added first, and so reduced once.

Autograd adds a gradient's terms in order of arrival, such as ``((residual + dv) + dk) + dq``, where the last
three are partial. This order takes three reductions; ``residual + ((dv + dk) + dq)`` takes one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from torch_mlir import ir

from shardc.passes.manager.attributes import attributes_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.partition.demand import Demands

Terms = tuple[object, ...]


@dataclass(frozen=True)
class Chain:
    """A sum: ``adds`` are its additions in program order, the last one is the whole sum; ``leaves`` its
    terms.
    """

    adds: tuple[int, ...]
    leaves: tuple[int, ...]


def reassociate(program: Program, demands: Demands) -> bool:
    """Reorder every chain with more reductions than needed. Return whether any chain changed."""
    changed = False
    for chain in chains(program):
        groups = Counter(t for v in chain.leaves if (t := _terms(program, demands, v)))
        if groups and len(groups) < _reductions(program, demands, chain):
            _rebuild(program, demands, chain)
            changed = True
    return changed


def chains(program: Program) -> Iterator[Chain]:
    """Yield the maximal chains of at least two additions."""
    additions = {number for number, node in enumerate(program.nodes) if _is_plain_addition(program, node)}
    inner = {
        number
        for number in additions
        if len(users := program.users[program.nodes[number].results[0]]) == 1
        and users[0] in additions
        and program.nodes[number].results[0] not in program.returns
        and "dist.name" not in program.nodes[number].op.attributes
    }
    for root in sorted(additions - inner):
        adds, leaves = _collect(program, inner, root)
        if len(adds) > 1:
            yield Chain(tuple(sorted(adds)), tuple(leaves))


def _collect(program: Program, inner: set[int], number: int) -> tuple[list[int], list[int]]:
    """Return the additions of a sum, and its terms."""
    adds, leaves = [number], []
    for value in program.nodes[number].operands:
        if program.producer[value] in inner:
            more_adds, more_leaves = _collect(program, inner, program.producer[value])
            adds += more_adds
            leaves += more_leaves
        else:
            leaves.append(value)
    return adds, leaves


def _is_plain_addition(program: Program, node: Node) -> bool:
    """Return whether a node is ``a + b`` of one type, without broadcasting or scaling."""
    if node.spec.target != "aten.add.Tensor" or len(node.operands) != 2 or node.spec["alpha"] != 1:
        return False
    return len({program.types[v] for v in node.values}) == 1


def _terms(program: Program, demands: Demands, value: int) -> Terms:
    """Return the partial terms of a leaf that the chain may add before they are reduced."""
    return demands.made[value].partial if len(program.users[value]) == 1 else ()


def _reductions(program: Program, demands: Demands, chain: Chain) -> int:
    """Return the number of reductions of the chain in its present order, including that of its sum."""
    numbers = set(chain.adds)
    inside = {program.nodes[n].results[0] for n in chain.adds}
    count = sum(
        1
        for value in (*chain.leaves, *inside)
        for node, _, need in demands.uses[value]
        if node in numbers and demands.made[value].partial and not need.partial
    )
    return count + bool(demands.made[program.nodes[max(numbers)].results[0]].partial)


def _rebuild(program: Program, demands: Demands, chain: Chain) -> None:
    """Replace the sum: add whole terms first, then the sum of each group of partial terms."""
    root = program.nodes[chain.adds[-1]].op
    groups: dict[Terms, list[ir.Value]] = {}
    for value in chain.leaves:
        groups.setdefault(_terms(program, demands, value), []).append(program.values[value])
    ordered = sorted(groups.items(), key=lambda group: bool(group[0]))
    total = _sum(root, [_sum(root, values) for _, values in ordered])
    for name, attribute in root.attributes.items():
        total.owner.attributes[name] = attribute
    root.results[0].replace_all_uses_with(total)
    # The sum may be a term of another chain.
    program.values[program.nodes[chain.adds[-1]].results[0]] = total
    for number in reversed(chain.adds):
        program.nodes[number].op.erase()


def _sum(root: ir.Operation, values: list[ir.Value]) -> ir.Value:
    """Return the sum of the values, from left to right, inserted before ``root``."""
    total, *rest = values
    attributes = attributes_of(root, "dist.phase", "dist.shardings", "dist.priorities")
    loc, ip, types = root.location, ir.InsertionPoint(root), [root.results[0].type]
    for value in rest:
        operands = [total, value, root.operands[2]]
        total = ir.Operation.create(root.name, types, operands, attributes, loc=loc, ip=ip).result
    return total
