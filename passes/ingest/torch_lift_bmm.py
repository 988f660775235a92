"""``torch-lift-bmm``: products of batches of heads, with the batch and the heads as dims of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.passes.manager.attributes import copy_attributes
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import Node, Program, find_function, read_program
from shardc.passes.partition.local_call import CallWriter

_VIEWS = ("aten.view", "aten.reshape", "aten._unsafe_view")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class TorchLiftBmm(Pass):
    """``view([B,H,M,N], bmm(view([B*H,M,K], q), view([B*H,K,N], k)))`` becomes ``matmul(q, k)`` on four dims.

    PyTorch computes ``q @ k`` of attention that is written out, or has dropout, so. A cut of the heads can't
    be said of the joint dim ``B*H``, where the batch is more major: such an attention would stay whole.
    """

    name: ClassVar[str] = "torch-lift-bmm"

    def run(self, module: ir.Module) -> None:
        function = find_function(module)
        ops = [] if function is None else function.regions[0].blocks[0].operations
        program = read_program(module) if any(o.operation.name == "torch.aten.bmm" for o in ops) else None
        if program is None:
            return
        builder = CallBuilder(program.block)
        for node in program.nodes:
            if node.spec.target == "aten.bmm":
                _lift(program, builder, node)


def _lift(program: Program, builder: CallBuilder, node: Node) -> None:
    left, right = (_four_dims(program, v) for v in node.operands)
    if left is None or right is None or program.types[left[0]].shape[:2] != program.types[right[0]].shape[:2]:
        return
    lifted = (*program.types[left[0]].shape[:2], *program.types[node.results[0]].shape[1:])
    writer = CallWriter.at(builder, node.op)
    operands = [_source(program, writer, *side) for side in (left, right)]
    _replace(program, writer, node, writer.call("aten.matmul", *operands), lifted)


def _four_dims(program: Program, value: int) -> tuple[int, bool] | None:
    """The value [B,H,x,y] that ``value`` [B*H,x,y] is a view of, and whether its last dims are exchanged."""
    flipped = False
    while (producer := program.producer[value]) >= 0:
        node = program.nodes[producer]
        source, seen = node.operands[0] if node.operands else value, program.types[value].shape
        if _exchanges(program, node):
            flipped, value = not flipped, source
            continue
        shape = program.types[source].shape
        is_view = node.spec.target in _VIEWS and len(shape) == 4
        return (source, flipped) if is_view and seen == (shape[0] * shape[1], *shape[2:]) else None
    return None


def _exchanges(program: Program, node: Node) -> bool:
    """Whether a call exchanges the last two of three dims."""
    if node.spec.target != "aten.transpose.int" or len(program.types[node.results[0]].shape) != 3:
        return False
    return {d % 3 for d in node.spec.args[1:]} == {1, 2}


def _source(program: Program, writer: CallWriter, value: int, flipped: bool) -> ir.Value:
    """What the product reads: a value on four dims, its last two exchanged if ``flipped``."""
    made = program.values[value]
    return writer.call("aten.transpose.int", made, 2, 3) if flipped else made


def _replace(program: Program, writer: CallWriter, node: Node, product: ir.Value, shape: Shape) -> None:
    """Views of the old result back to ``shape`` read the product itself; others a flat view of it."""
    exchanged: ir.Value | None = None
    for user in (program.nodes[n] for n in program.users[node.results[0]]):
        if _unfolds(program, user, shape):
            user.op.results[0].replace_all_uses_with(product)
        elif _exchanges(program, user):
            for last in (program.nodes[n] for n in program.users[user.results[0]]):
                if _unfolds(program, last, (*shape[:2], shape[3], shape[2])):
                    exchanged = exchanged or writer.call("aten.transpose.int", product, 2, 3)
                    last.op.results[0].replace_all_uses_with(exchanged)
    seen = writer.call("aten.view", product, program.types[node.results[0]].shape)
    copy_attributes(node.op, seen.owner, "dist.name")
    node.op.results[0].replace_all_uses_with(seen)


def _unfolds(program: Program, node: Node, shape: Shape) -> bool:
    return node.spec.target in _VIEWS and program.types[node.results[0]].shape == shape
