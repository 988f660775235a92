"""Assignments of calls that a search chose (:mod:`shardc.passes.search`); they replace other decisions."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.rules.rule import Assignment, Rule
from shardc.passes.manager.program import Node

CUTS = "dist.cuts"
"""Attribute of a call: the axes that split each factor of its rule."""
PASSES, OVER = "dist.passes", "dist.over"
"""Attributes of a call: the number of the linear set that stays partial, and the axes."""


def read_cuts(node: Node, codec: ShardingCodec) -> dict[str, Axes]:
    """Return the axes that split each factor of a call with ``dist.cuts``."""
    return {entry.name: codec.read_axes(entry.attr) for entry in ir.DictAttr(node.op.attributes[CUTS])}


def read_passing(node: Node, codec: ShardingCodec) -> tuple[frozenset[int], Axes]:
    """Return the operands that stay partial sums through a call, and the axes; empty if there are none."""
    if PASSES not in node.op.attributes:
        return frozenset(), ()
    number = ir.IntegerAttr(node.op.attributes[PASSES]).value
    return node.rule.linear[number], codec.read_axes(node.op.attributes[OVER])


def layouts_under(rule: Rule, cuts: Assignment) -> tuple[list[Sharding], list[Sharding]]:
    """Return the shardings that a call needs and makes under an assignment."""
    needs = [sharding.normal() for sharding in rule.operand_shardings(cuts)]
    return needs, [sharding.normal() for sharding in rule.result_shardings(cuts)]
