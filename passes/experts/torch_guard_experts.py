"""``torch-guard-experts``: keeps the state unchanged in a step without enough room for its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType
from shardc.passes.experts.expert_weights import PRODUCT
from shardc.passes.experts.layout import Layout
from shardc.passes.manager.attributes import attributes_of, edge_attributes, set_edge_attributes
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import Node, Program, read_program
from shardc.runtime.check import STATE_ROLES
from shardc.runtime.schema.manifest import OVERFLOW

BEYOND = "shardc.beyond_room"
_COUNT, _FLAG = TensorType((), torch.int64), TensorType((), torch.bool)

Call = Callable[..., ir.Operation]


@dataclass(frozen=True)
class TorchGuardExperts(Pass):
    """Adds a result, the number of rows without room at their experts, and updates state only if it is 0.

    On one device there is room for all rows. If rows are dispatched, ``dist-dispatch`` inserts the actual
    room. The pass leaves a step without products of experts, or without state, unchanged.
    """

    name: ClassVar[str] = "torch-guard-experts"

    def run(self, module: ir.Module) -> None:
        program = read_program(module)
        if program is None:
            return
        routings: dict[int, Node] = {}
        for node in program.nodes:
            if node.spec.target == PRODUCT:
                routings.setdefault(node.operands[2], node)
        written = _written(program)
        if routings and written:
            _guard(program, list(routings.values()), written)


def count_beyond(program: Program, node: Node, layout: Layout, ids: ir.Value) -> None:
    """Replace ``node`` by a count of the rows beyond the room of ``layout``, for each batch block."""
    type_ = TensorType((layout.blocks,), torch.int64)
    args = (ids, layout.experts, *layout.shape)
    made = _call(CallBuilder(program.block), node)(BEYOND, args, [type_]).results[0]
    node.op.results[0].replace_all_uses_with(made)


def _call(builder: CallBuilder, node: Node) -> Call:
    marks = attributes_of(node.op, "dist.phase", "dist.module")
    ip = ir.InsertionPoint(node.op)
    return partial(builder.call, loc=node.op.location, ip=ip, attributes=marks)


def _written(program: Program) -> dict[int, int]:
    """Return the updated state: number of the result with the new value -> value with the old one."""
    pairs = enumerate(zip(program.returns, program.state_of_results(), strict=True))
    return {
        place: old
        for place, (new, old) in pairs
        if old is not None and old != new and program.result_key(place)[0] in STATE_ROLES
    }


def _guard(program: Program, products: list[Node], written: dict[int, int]) -> None:
    builder, location = CallBuilder(program.block), products[-1].op.location
    marks = {"dist.phase": ir.StringAttr.get("optimizer", program.function.context)}
    ip = ir.InsertionPoint(program.terminator)
    call = partial(builder.call, loc=location, ip=ip, attributes=marks)
    count, *others = [_rows_beyond(program, builder, node) for node in products]
    for other in others:
        count = call("aten.add.Tensor", (count, other, 1), [_COUNT]).results[0]
    fits = call("aten.eq.Scalar", (count, 0), [_FLAG]).results[0]
    returned = list(program.terminator.operands)
    for place, old in written.items():
        args = (fits, returned[place], program.values[old])
        returned[place] = call("aten.where.self", args, [program.types[old]]).results[0]
    _return(program, [*returned, count])


def _rows_beyond(program: Program, builder: CallBuilder, node: Node) -> ir.Value:
    """Return the number of rows of a routing without room, a 0-d tensor."""
    call, ids = _call(builder, node), node.operands[2]
    (rows,), experts = program.types[ids].shape, node.spec["w"].shape[0]
    blocks = TensorType((1,), torch.int64)
    made = call(BEYOND, (program.values[ids], experts, 1, 1, rows), [blocks]).results[0]
    return call("aten.sum", (made, None), [_COUNT]).results[0]


def _return(program: Program, values: list[ir.Value]) -> None:
    """Make the function return ``values``; the last of them is the count."""
    function, context = program.function, program.function.context
    rows = [edge_attributes(function, "res_attrs", place) for place in range(len(values) - 1)]
    texts = {"dist.role": OVERFLOW, "dist.name": "experts"}
    added = {name: ir.StringAttr.get(text, context) for name, text in texts.items()}
    location = program.terminator.location
    program.terminator.erase()
    ir.Operation.create("func.return", [], values, loc=location, ip=ir.InsertionPoint(program.block))
    inputs = [argument.type for argument in program.block.arguments]
    type_ = ir.FunctionType.get(inputs, [value.type for value in values], context)
    function.attributes["function_type"] = ir.TypeAttr.get(type_, context)
    set_edge_attributes(function, "res_attrs", [*rows, added])
