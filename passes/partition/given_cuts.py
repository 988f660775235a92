"""Assignments of calls that a search chose (:mod:`shardc.passes.search`); they replace other decisions."""

from __future__ import annotations

from collections.abc import Mapping

from torch_mlir import ir

from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.rules.rule import Assignment, Rule
from shardc.passes.manager.program import Node

CUTS = "dist.cuts"
"""Attribute of a call: the axes that split each factor of its rule."""
PASSES, OVER = "dist.passes", "dist.over"
"""Attributes of a call: the number of the linear set that stays partial, and the axes."""
KEPT = "dist.kept"
"""Attribute of a call: results that are kept in shards and gathered in each phase, with their layouts."""


def read_cuts(node: Node, codec: ShardingCodec) -> dict[str, Axes]:
    """Return the axes that split each factor of a call with ``dist.cuts``."""
    return {entry.name: codec.read_axes(entry.attr) for entry in ir.DictAttr(node.op.attributes[CUTS])}


def read_passing(node: Node, codec: ShardingCodec) -> tuple[frozenset[int], Axes]:
    """Return the operands that stay partial sums through a call, and the axes; empty if there are none."""
    if PASSES not in node.op.attributes:
        return frozenset(), ()
    number = ir.IntegerAttr(node.op.attributes[PASSES]).value
    return node.rule.linear[number], codec.read_axes(node.op.attributes[OVER])


def read_kept(node: Node, codec: ShardingCodec) -> dict[int, Sharding]:
    """Return the values that a call makes and that are kept in shards, with their layouts."""
    if KEPT not in node.op.attributes:
        return {}
    entries = ir.DictAttr(node.op.attributes[KEPT])
    return {node.results[int(entry.name)]: codec.read(entry.attr) for entry in entries}


def write_kept(op: ir.Operation, kept: Mapping[int, Sharding], codec: ShardingCodec) -> None:
    """Write the results that are kept in shards, by number."""
    if kept:
        entries = {str(number): codec.write(sharding) for number, sharding in kept.items()}
        op.attributes[KEPT] = ir.DictAttr.get(entries, op.context)


def layouts_under(rule: Rule, cuts: Assignment) -> tuple[list[Sharding], list[Sharding]]:
    """Return the shardings that a call needs and makes under an assignment."""
    needs = [sharding.normal() for sharding in rule.operand_shardings(cuts)]
    return needs, [sharding.normal() for sharding in rule.result_shardings(cuts)]
