"""``torch-lift-experts``: rewrites products of rows with matrices that an index selects for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType
from shardc.passes.experts.chosen_matrix import (
    ChosenMatrix,
    choice,
    chosen_matrix,
    exchanges,
    flat_views,
    is_cast,
    is_zero,
    producer,
    row_shape,
    rows_behind,
)
from shardc.passes.ingest.torch_share import drop_unread
from shardc.passes.manager.attributes import attributes_of, copy_attributes
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import Node, Program, find_function, read_program

Call = Callable[..., ir.Operation]


@dataclass(frozen=True)
class TorchLiftExperts(Pass):
    """Rewrites ``bmm(w[ids], x)`` to ``shardc::expert_mm(x, w, ids)``, and its gradient to ``expert_outer``.

    The original product reads and writes a matrix for each row, [S, K, N]; the new one needs only a matrix
    for each expert. Names of modules do not matter: the pass matches batched products whose matrices an index
    selects.
    """

    name: ClassVar[str] = "torch-lift-experts"

    def run(self, module: ir.Module) -> None:
        function = find_function(module)
        ops = [] if function is None else function.regions[0].blocks[0].operations
        names = {o.operation.name for o in ops}
        program = read_program(module) if {"torch.aten.bmm", "torch.aten.index.Tensor"} <= names else None
        if program is None:
            return
        writer = _Writer(program)
        for node in program.nodes:
            if node.spec.target == "aten.bmm":
                writer.lift_product(node)
            elif node.spec.target == "aten.index_put":
                writer.lift_gradient(node)
        drop_unread(program.block)


class _Writer:
    """Writer of products of experts, each beside the call that it replaces."""

    def __init__(self, program: Program) -> None:
        self._program, self._builder = program, CallBuilder(program.block)
        self._checked: dict[int, ir.Value] = {}

    def lift_product(self, node: Node) -> None:
        """Replace ``bmm(w[ids], x[:, :, None])`` or ``bmm(x[:, None], w[ids])``; ignore other products."""
        left, right = (chosen_matrix(self._program, v) for v in node.operands)
        if (left is None) == (right is None):
            return
        chosen = left or right
        assert chosen is not None
        rows = self._rows(node, node.operands[left is not None])
        made = self._program.types[node.results[0]]
        shape = row_shape(made.shape)
        if rows is None or shape is None:
            return
        call = self._call(node)
        turned = chosen.turned == (right is not None)
        matrices = self._chosen(call, chosen, turned)
        experts = self._program.types[chosen.w].shape[0]
        args = (rows, matrices, self._ids(chosen.ids, experts, node), 1, 1.0 / experts)
        product = call("shardc.expert_mm", args, [made.with_shape(shape)]).results[0]
        for view in flat_views(self._program, node.results[0], shape):
            view.op.results[0].replace_all_uses_with(product)
        node.op.results[0].replace_all_uses_with(
            call("aten.view", (product, made.shape), [made]).results[0],
        )

    def lift_gradient(self, node: Node) -> None:
        """Replace ``zeros.index_put([ids], bmm(x[:, :, None], y[:, None]), accumulate=True)``."""
        program = self._program
        found = choice(program, node) if node.spec["accumulate"] and len(node.operands) == 3 else None
        outer = _outer_product(program, node.operands[-1])
        if found is None or outer is None or not is_zero(program, found[0]):
            return
        product, turned, casts = outer
        x, y = (self._rows(product, v) for v in product.operands)
        if x is None or y is None:
            return
        call, experts = self._call(node), program.types[found[0]].shape[0]
        type_ = program.types[product.results[0]].with_shape(program.types[node.results[0]].shape)
        sides = (y, x) if turned else (x, y)
        args = (*sides, self._ids(found[1], experts, node), experts, 1, 1.0 / experts)
        sums, _ = self._cast(call, call("shardc.expert_outer", args, [type_]).results[0], type_, casts)
        copy_attributes(node.op, sums.owner, "dist.name")
        node.op.results[0].replace_all_uses_with(sums)

    def _call(self, node: Node) -> Call:
        marks = attributes_of(node.op, "dist.phase", "dist.module")
        place = ir.InsertionPoint(node.op)
        return partial(self._builder.call, loc=node.op.location, ip=place, attributes=marks)

    def _ids(self, value: int, experts: int, node: Node) -> ir.Value:
        """Return the checked expert of each row.

        One check follows the definition of the value, and all readers of the value read its result.
        """
        if value not in self._checked:
            ids, made = self._program.values[value], producer(self._program, value)
            count = self._builder.argument(experts, "int", ir.InsertionPoint(node.op))
            ip = ir.InsertionPoint.after(count.owner if made is None else made.op)
            type_ = self._program.types[value]
            check = self._call(node)("shardc.expert_ids", (ids, count), [type_], ip=ip)
            ids.replace_all_uses_with(check.results[0])
            check.operands[0] = ids
            self._checked[value] = check.results[0]
        return self._checked[value]

    def _rows(self, node: Node, value: int) -> ir.Value | None:
        """Return an operand as rows [S, K]; None if its shape does not tell which dim is which."""
        type_ = self._program.types[value]
        shape = row_shape(type_.shape)
        if shape is None:
            return None
        behind = rows_behind(self._program, value, shape)
        if behind is not None:
            return self._program.values[behind]
        args = (self._program.values[value], shape)
        return self._call(node)("aten.view", args, [type_.with_shape(shape)]).results[0]

    def _chosen(self, call: Call, chosen: ChosenMatrix, turned: bool) -> ir.Value:
        """Return the matrices [E, K, N] with which rows are multiplied."""
        value, type_ = self._cast(
            call, self._program.values[chosen.w], self._program.types[chosen.w], chosen.casts
        )
        if not turned:
            return value
        e, n, k = type_.shape
        return call("aten.transpose.int", (value, 1, 2), [type_.with_shape((e, k, n))]).results[0]

    def _cast(
        self, call: Call, value: ir.Value, type_: TensorType, casts: Sequence[Node]
    ) -> tuple[ir.Value, TensorType]:
        """Return a value and its type after ``casts``, calls that change a dtype."""
        for node in casts:
            type_ = TensorType(type_.shape, self._program.types[node.results[0]].dtype)
            value = call(node.spec.target, (value, *node.spec.args[1:]), [type_]).results[0]
        return value, type_


def _outer_product(program: Program, value: int) -> tuple[Node, bool, list[Node]] | None:
    """Return the outer product from which transposes and casts make ``value`` [S, A, B]; None if none does.

    The other results: whether the product is transposed, and the casts.
    """
    turned, casts = False, []
    while (node := producer(program, value)) is not None and node.spec.target != "aten.bmm":
        if is_cast(node):
            casts.insert(0, node)
        elif exchanges(program, node):
            turned = not turned
        else:
            return None
        value = node.operands[0]
    is_outer = node is not None and program.types[node.operands[0]].shape[2] == 1
    return (node, turned, casts) if node is not None and is_outer else None
