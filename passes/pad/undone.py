"""Gradients of pads, which remove the padding again, and sums of which they do so."""

from __future__ import annotations

from collections.abc import Collection

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.spatial.pads import CONSTANT, amounts
from shardc.passes.manager.attributes import attributes_of
from shardc.passes.manager.program import Node, Program

CIRCULAR = "shardc.circular_pad"
_SUM = "aten.add.Tensor"


def readers(program: Program, value: int) -> list[Node]:
    return [program.nodes[n] for n in program.users[value]]


def takes_off(spec: OpCall, pad: OpCall) -> bool:
    """Return whether a call is the gradient of ``pad``."""
    if pad.target == CIRCULAR:
        return spec.target == f"{CIRCULAR}_backward" and spec["padding"] == pad["padding"]
    return spec.target == CONSTANT and tuple(spec["pad"]) == tuple(-n for n in pad["pad"])


def crop_terms(program: Program, builder: CallBuilder, sources: Collection[str]) -> bool:
    """Replace crops of sums by sums of crops, and return whether there was one.

    The gradients of a padded image that several calls read are summed before the padding is removed.

    Args:
        sources: Calls that must have made both terms of a sum.
    """
    found = [node for node in program.nodes if _crops_sum(program, node, sources)]
    for node in found:
        op, total = node.op, program.nodes[program.producer[node.operands[0]]]
        terms = [_crop(builder, node, program.values[value]) for value in total.operands]
        args = (*terms, 1)
        place = op.location, ir.InsertionPoint(op)
        made = builder.call(_SUM, args, list(node.spec.results), *place, attributes_of(op))
        op.results[0].replace_all_uses_with(made.results[0])
    return bool(found)


def _crops_sum(program: Program, node: Node, sources: Collection[str]) -> bool:
    if node.spec.target != CONSTANT or max(amounts(node.spec)) > 0 or program.producer[node.operands[0]] < 0:
        return False
    total = program.nodes[program.producer[node.operands[0]]]
    if total.spec.target != _SUM or len(total.operands) != 2 or total.spec["alpha"] != 1:
        return False
    if any(t.shape != total.spec.result.shape for t in total.spec.tensors):
        return False
    makers = [program.producer[value] for value in total.operands]
    return all(n >= 0 and program.nodes[n].spec.target in sources for n in makers)


def _crop(builder: CallBuilder, crop: Node, value: ir.Value) -> ir.Value:
    op = crop.op
    place = op.location, ir.InsertionPoint(op)
    args = value, tuple(amounts(crop.spec)), 0
    attributes = {k: v for k, v in attributes_of(op).items() if k not in ("dist.name", "dist.refine")}
    return builder.call(CONSTANT, args, list(crop.spec.results), *place, attributes).results[0]
