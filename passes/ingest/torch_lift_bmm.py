"""``torch-lift-bmm``: products of batches of heads, with the batch and the heads as dims of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType
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
    place = (node.op.location, ir.InsertionPoint(node.op))
    phase = {n: node.op.attributes[n] for n in ("dist.phase",) if n in node.op.attributes}
    operands = [_source(program, builder, side, place, phase) for side in (left, right)]
    product = builder.call("aten.matmul", operands, [lifted], *place, phase).results[0]
    _replace(program, builder, node, product, lifted, phase)


def _four_dims(program: Program, value: int) -> tuple[int, bool] | None:
    """The value [B,H,x,y] that ``value`` [B*H,x,y] is a view of, and whether its last two dims
    are exchanged.
    """
    flipped = False
    while (producer := program.producer[value]) >= 0:
        node = program.nodes[producer]
        if _exchanges(node, 1, 2):
            flipped, value = not flipped, node.operands[0]
            continue
        if node.spec.target not in _VIEWS:
            return None
        source, seen = program.types[node.operands[0]].shape, program.types[value].shape
        if len(source) == 4 and seen == (source[0] * source[1], *source[2:]):
            return node.operands[0], flipped
        return None
    return None


def _exchanges(node: Node, first: int, second: int) -> bool:
    if node.spec.target != "aten.transpose.int":
        return False
    rank = len(node.spec.results[0].shape) if node.spec.results[0] else 0
    return {d % rank for d in node.spec.args[1:]} == {first, second} and rank == second + 1


def _source(
    program: Program,
    builder: CallBuilder,
    side: tuple[int, bool],
    place: tuple[ir.Location, ir.InsertionPoint],
    phase: dict[str, ir.Attribute],
) -> ir.Value:
    value, flipped = side
    if not flipped:
        return program.values[value]
    return _exchange(builder, program.values[value], program.types[value], place, phase)


def _exchange(
    builder: CallBuilder,
    value: ir.Value,
    type_: TensorType,
    place: tuple[ir.Location, ir.InsertionPoint],
    phase: dict[str, ir.Attribute],
) -> ir.Value:
    b, h, x, y = type_.shape
    return builder.call(
        "aten.transpose.int", (value, 2, 3), [type_.with_shape((b, h, y, x))], *place, phase
    ).results[0]


def _replace(
    program: Program,
    builder: CallBuilder,
    node: Node,
    product: ir.Value,
    lifted: TensorType,
    phase: dict[str, ir.Attribute],
) -> None:
    """Views of the old result back to four dims read the product itself; other readers a flat view of it."""
    result = node.results[0]
    place = (node.op.location, ir.InsertionPoint(node.op))
    exchanged: ir.Value | None = None
    for reader in program.users[result]:
        user = program.nodes[reader]
        if _unfolds(program, user, lifted):
            user.op.results[0].replace_all_uses_with(product)
        elif _exchanges(user, 1, 2):
            b, h, x, y = lifted.shape
            turned = lifted.with_shape((b, h, y, x))
            for last in (program.nodes[n] for n in program.users[user.results[0]]):
                if _unfolds(program, last, turned):
                    exchanged = exchanged or _exchange(builder, product, lifted, place, phase)
                    last.op.results[0].replace_all_uses_with(exchanged)
    flat = program.types[result]
    seen = builder.call("aten.view", (product, flat.shape), [flat], *place, phase).results[0]
    if "dist.name" in node.op.attributes:
        seen.owner.attributes["dist.name"] = node.op.attributes["dist.name"]
    node.op.results[0].replace_all_uses_with(seen)


def _unfolds(program: Program, node: Node, lifted: TensorType) -> bool:
    return node.spec.target in _VIEWS and program.types[node.results[0]].shape == lifted.shape
