"""Ring attention, which passes keys and values from rank to rank: the calls that can use it."""

from __future__ import annotations

from math import prod

from shardc.diagnostics.base import remark
from shardc.dialects.aten.call import target_name
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.location import source_line
from shardc.passes.manager.attention import CALLS, attention_axes
from shardc.passes.manager.program import Node, Program

FOLDED = "shardc.folded_attention"


def ring_ways(node: Node, mesh: Mesh) -> int:
    """Return into how many shards a plan splits the sequence of a call with ring attention; 0 for others."""
    axes = attention_axes(node.op, "ring") if node.spec.target in CALLS else frozenset()
    return prod(map(mesh.size, axes)) if axes else 0


def sees_all(node: Node) -> bool:
    """Return whether each row attends to each column."""
    spec = node.spec
    return not spec["causal"] and spec["mask"] is None and spec["q"].shape[2] == spec["k"].shape[2]


def remark_gathers(program: Program) -> None:
    """Report the calls that gather keys and values although the plan asks for ring attention."""
    why = "because of masks, keys of other sequences, or lengths that do not divide"
    ops = [view.operation for view in program.block.operations]
    calls = [op for op in ops if op.name == "torch.operator" and target_name(op) in (CALLS[0], FOLDED)]
    left = [op for op in calls if attention_axes(op, "ring")]
    lines = sorted({line for op in left if (line := source_line(op.location)) is not None})
    if left:
        calls = "1 attention call gathers" if len(left) == 1 else f"{len(left)} attention calls gather"
        remark(
            "KeysGathered",
            f"{calls} keys and values instead of sending them around the ring ({why})",
            *lines[:1],
        )
