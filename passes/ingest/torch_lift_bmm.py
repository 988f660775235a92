"""``torch-lift-bmm``: gives batched products of attention separate dims for batch and heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType
from shardc.passes.manager.attributes import attributes_of, copy_attributes
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import Node, Program, find_function, read_program

_VIEWS = ("aten.view", "aten.reshape", "aten._unsafe_view")
Call = Callable[..., ir.Operation]


@dataclass(frozen=True)
class TorchLiftBmm(Pass):
    """``view([B,H,M,N], bmm(view([B*H,M,K], q), view([B*H,K,N], k)))`` becomes ``matmul(q, k)`` on four dims.

    PyTorch traces ``q @ k`` of attention that is written out, or has dropout, in this form. A sharding of the
    joint dim ``B*H``, in which the batch is more major, cannot express a split of the heads, so that heads
    would stay whole.
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
    flat, op = program.types[node.results[0]], node.op
    lifted = flat.with_shape((*program.types[left[0]].shape[:2], *flat.shape[1:]))
    marks = attributes_of(op, "dist.phase", "dist.module")
    call = partial(builder.call, loc=op.location, ip=ir.InsertionPoint(op), attributes=marks)
    operands = [_source(program, call, *side) for side in (left, right)]
    _replace(program, call, node, call("aten.matmul", operands, [lifted]).results[0], lifted)


def _four_dims(program: Program, value: int) -> tuple[int, bool] | None:
    """Return the value [B,H,x,y] behind the view ``value`` [B*H,x,y], and whether its last dims are
    swapped.
    """
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
    """Return whether a call swaps the last two of three dims."""
    if node.spec.target != "aten.transpose.int" or len(program.types[node.results[0]].shape) != 3:
        return False
    return {d % 3 for d in node.spec.args[1:]} == {1, 2}


def _source(program: Program, call: Call, value: int, flipped: bool) -> ir.Value:
    """Return the product's operand with four dims, its last two swapped if ``flipped``."""
    made, type_ = program.values[value], program.types[value]
    return call("aten.transpose.int", (made, 2, 3), [_turned(type_)]).results[0] if flipped else made


def _replace(program: Program, call: Call, node: Node, product: ir.Value, lifted: TensorType) -> None:
    """Replace the old result: views back to four dims become the product, other readers get a flat view of
    it.
    """
    exchanged: ir.Value | None = None
    for user in (program.nodes[n] for n in program.users[node.results[0]]):
        if _unfolds(program, user, lifted):
            user.op.results[0].replace_all_uses_with(product)
        elif _exchanges(program, user):
            for last in (program.nodes[n] for n in program.users[user.results[0]]):
                if _unfolds(program, last, turned := _turned(lifted)):
                    exchanged = exchanged or call("aten.transpose.int", (product, 2, 3), [turned]).results[0]
                    last.op.results[0].replace_all_uses_with(exchanged)
    flat = program.types[node.results[0]]
    seen = call("aten.view", (product, flat.shape), [flat]).results[0]
    copy_attributes(node.op, seen.owner, "dist.name")
    node.op.results[0].replace_all_uses_with(seen)


def _turned(type_: TensorType) -> TensorType:
    b, h, x, y = type_.shape
    return type_.with_shape((b, h, y, x))


def _unfolds(program: Program, node: Node, lifted: TensorType) -> bool:
    return node.spec.target in _VIEWS and program.types[node.results[0]].shape == lifted.shape
