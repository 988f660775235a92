"""Cuts that were chosen for a call before (:mod:`shardc.passes.search`), which nothing else decides then."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.dist.sharding import Axes, Sharding, ShardingCodec
from shardc.dialects.rules.rule import Assignment, Rule
from shardc.passes.manager.program import Node

CUTS = "dist.cuts"
"""On a call: the axes that cut each factor of its rule."""
PASSES, OVER = "dist.passes", "dist.over"
"""On a call: which of its rule's linear sets stay partial sums, by number, and over which axes."""


def read_cuts(node: Node, codec: ShardingCodec) -> dict[str, Axes]:
    """The axes that cut each factor of a call that has ``dist.cuts``."""
    return {entry.name: codec.read_axes(entry.attr) for entry in ir.DictAttr(node.op.attributes[CUTS])}


def read_passing(node: Node, codec: ShardingCodec) -> tuple[frozenset[int], Axes]:
    """The operands that stay partial sums through a call, and over which axes; empty if none do."""
    if PASSES not in node.op.attributes:
        return frozenset(), ()
    number = ir.IntegerAttr(node.op.attributes[PASSES]).value
    return node.rule.linear[number], codec.read_axes(node.op.attributes[OVER])


def layouts_under(rule: Rule, cuts: Assignment) -> tuple[list[Sharding], list[Sharding]]:
    """What a call needs and makes under an assignment."""
    needs = [sharding.normal() for sharding in rule.operand_shardings(cuts)]
    return needs, [sharding.normal() for sharding in rule.result_shardings(cuts)]
