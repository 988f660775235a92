"""``torch-lift-bmm``: products of batches of heads, with the batch and the heads as dims of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType
from shardc.passes.manager.attributes import attributes_of, copy_attributes
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import Node, Program, find_function, read_program

_VIEWS = ("aten.view", "aten.reshape", "aten._unsafe_view")


@dataclass(frozen=True)
class TorchLiftBmm(Pass):
    """``view([B,H,M,N], bmm(view([B*H,M,K], q), view([B*H,K,N], k)))`` becomes ``matmul(q, k)`` on four dims.

    PyTorch computes ``q @ k`` of attention that is written out, or has dropout, so. A cut of the heads can't
    be said of the joint dim ``B*H``, where the batch is more major: left as it is, it would keep every such
    attention whole.
    """

    name: ClassVar[str] = "torch-lift-bmm"

    def run(self, module: ir.Module) -> None:
        function = find_function(module)
        if function is None or all(
            op.operation.name != "torch.aten.bmm" for op in function.regions[0].blocks[0]
        ):
            return
        program = read_program(module)
        assert program is not None
        builder = CallBuilder(program.block)
        for node in program.nodes:
            if node.spec.target == "aten.bmm":
                _lift(program, builder, node)


def _lift(program: Program, builder: CallBuilder, node: Node) -> None:
    left, right = (_four_dims(program, v) for v in node.operands)
    if left is None or right is None or program.types[left[0]].shape[:2] != program.types[right[0]].shape[:2]:
        return
    batch = program.types[left[0]].shape[:2]
    flat = program.types[node.results[0]]
    lifted = flat.with_shape((*batch, *flat.shape[1:]))
    lifter = _Lifter(program, builder, node)
    operands = [lifter.source(*side) for side in (left, right)]
    lifter.replace(lifter.call("aten.matmul", operands, lifted), lifted)


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


class _Lifter:
    """Builds calls before a ``bmm``, with its location and phase."""

    def __init__(self, program: Program, builder: CallBuilder, node: Node) -> None:
        self._program, self._builder, self._node = program, builder, node

    def call(self, target: str, args: Sequence[object], type_: TensorType) -> ir.Value:
        op = self._node.op
        place, phase = ir.InsertionPoint(op), attributes_of(op, "dist.phase")
        return self._builder.call(target, args, [type_], op.location, place, phase).results[0]

    def source(self, value: int, flipped: bool) -> ir.Value:
        """What the product reads: a value on four dims, its last two exchanged if ``flipped``."""
        made = self._program.values[value]
        return self._exchanged(made, self._program.types[value]) if flipped else made

    def _exchanged(self, value: ir.Value, type_: TensorType) -> ir.Value:
        return self.call("aten.transpose.int", (value, 2, 3), _turned(type_))

    def replace(self, product: ir.Value, lifted: TensorType) -> None:
        """Views of the old result back to four dims read the product itself; others a flat view of it."""
        program, result = self._program, self._node.results[0]
        exchanged: ir.Value | None = None
        for user in (program.nodes[n] for n in program.users[result]):
            if _unfolds(program, user, lifted):
                user.op.results[0].replace_all_uses_with(product)
            elif _exchanges(program, user):
                for last in (program.nodes[n] for n in program.users[user.results[0]]):
                    if _unfolds(program, last, _turned(lifted)):
                        exchanged = exchanged or self._exchanged(product, lifted)
                        last.op.results[0].replace_all_uses_with(exchanged)
        flat = program.types[result]
        seen = self.call("aten.view", (product, flat.shape), flat)
        copy_attributes(self._node.op, seen.owner, "dist.name")
        self._node.op.results[0].replace_all_uses_with(seen)


def _turned(type_: TensorType) -> TensorType:
    b, h, x, y = type_.shape
    return type_.with_shape((b, h, y, x))


def _unfolds(program: Program, node: Node, lifted: TensorType) -> bool:
    return node.spec.target in _VIEWS and program.types[node.results[0]].shape == lifted.shape
