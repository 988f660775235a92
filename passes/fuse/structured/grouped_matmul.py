"""``aten._grouped_mm`` as a kernel of its own: matrix products of groups whose sizes are computed (experts).

Transposes of the operands are read as they lie. Calls that no ``kern.grouped_matmul`` says stay calls.
"""

from __future__ import annotations

from math import prod

from torch_mlir import ir

from shardc.dialects.aten.call import CallReader, target_name
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.attention_maps import FLOATS
from shardc.dialects.kern.grouped_matmul import SHAPES, grouped_matmul
from shardc.dialects.kern.kernel import kernel
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values

GROUPED = "aten._grouped_mm"


class GroupedMatmulKernels:
    """Turns calls of a block into kernels."""

    def __init__(self, context: ir.Context) -> None:
        self._reader, self._context = CallReader(), context

    def flops(self, op: ir.Operation) -> int:
        """Floating-point operations of a call whose rows all have a group; 0 if no kernel computes it."""
        call = self._reader.read(op)
        left, right, ends, (out,) = call.spec["self"], call.spec["mat2"], call.spec["offs"], call.spec.results
        types = (left, right, ends, out)
        if ends is None or call.spec["bias"] is not None or out is None:
            return 0
        if not all(t.is_static and 0 not in t.shape for t in types) or left.dtype not in FLOATS:
            return 0
        if right.dtype != left.dtype or out.dtype != left.dtype:
            return 0
        *_, shared = SHAPES[len(left.shape), len(right.shape)]
        terms = left.shape[-1]
        return 2 * terms * (left.shape[0] * right.shape[1] if shared == "k" else prod(out.shape))

    def write(self, op: ir.Operation, name: str) -> tuple[ir.Operation, ir.Value]:
        """The kernel that stands for ``op``, one with :meth:`flops`, and its result. The call stays."""
        call = self._reader.read(op)
        loc, ip = op.location, ir.InsertionPoint(op)
        left, right, ends = call.operands
        (left, left_turned), (right, right_turned) = self._as_it_lies(left), self._as_it_lies(right)
        turned = [role for role, is_turned in (("left", left_turned), ("right", right_turned)) if is_turned]
        given, (out,) = [left, right, ends], call.spec.results
        arguments = [builtin_type(self._type(value), self._context) for value in given]
        body, values, made = kernel(name, given, arguments, [out], loc=loc, ip=ip)
        inside = ir.InsertionPoint(body)
        product = grouped_matmul(
            list(body.arguments), builtin_type(out, self._context), turned, loc=loc, ip=inside
        )
        yield_values([product], loc=loc, ip=inside)
        return made, values[0]

    def _as_it_lies(self, value: ir.Value) -> tuple[ir.Value, bool]:
        """What an operand is a view of, and whether its last two dims lie the other way round there."""
        is_turned = False
        while (source := self._source(value)) is not None:
            value, is_turned = source, not is_turned
        return value, is_turned

    def _source(self, value: ir.Value) -> ir.Value | None:
        """What ``value`` is, with its last two dims exchanged; None if no view says so."""
        op = None if isinstance(value.owner, ir.Block) else value.owner.operation
        target = target_name(op) if op is not None and op.name.startswith("torch.aten.") else ""
        if op is None or target not in ("aten.t", "aten.transpose.int", "aten.permute"):
            return None
        call, rank = self._reader.read(op), len(self._type(value).shape)
        order = list(range(rank))
        if target == "aten.permute":
            order = [dim % rank for dim in call.spec["dims"]]
        else:
            x, y = (0, 1) if target == "aten.t" else (call.spec["dim0"] % rank, call.spec["dim1"] % rank)
            order[x], order[y] = y, x
        return call.operands[0] if order == [*range(rank - 2), rank - 1, rank - 2] else None

    def _type(self, value: ir.Value) -> TensorType:
        type_ = self._reader.tensor_type(value.type)
        assert type_ is not None
        return type_
