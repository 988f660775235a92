"""Kernels of ``shardc.linear_cross_entropy`` and its backward."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.call import Call, CallReader
from shardc.dialects.aten.schema import parameters
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.build import At
from shardc.dialects.kern.attention_maps import FLOATS
from shardc.dialects.kern.kernel import CHECKS, write_checks
from shardc.dialects.kern.linear_cross_entropy import MADE, linear_cross_entropy
from shardc.dialects.kern.linear_cross_entropy_backward import linear_cross_entropy_backward
from shardc.dialects.kern.yield_op import yield_values
from shardc.passes.fuse.linear_loss.write import BACKWARD, FORWARD, GRADIENTS
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.reading.values import is_read, type_of
from shardc.passes.fuse.structured.write_kernel import write_kernel

LINEAR_LOSSES = (FORWARD, BACKWARD)
MESSAGE = "Target {} is out of bounds."
"""Error text of ATen's loss."""
_MADE = {FORWARD: ("logp", "lse", "total", "top"), BACKWARD: GRADIENTS}
_OF = {FORWARD: MADE, BACKWARD: GRADIENTS}
"""Results of an op of ``kern``; a call may have only some of them."""


class LinearLossKernels:
    """Conversion of a block's linear cross entropies into kernels."""

    def __init__(self, symbols: Symbols) -> None:
        self._reader, self._symbols = CallReader(), symbols

    def has(self, op: ir.Operation) -> bool:
        """Return whether a call has a kernel: its floats have at most 32 bits, and its sizes are static."""
        spec = self._reader.read(op).spec
        types = [t for t in (*spec.tensors, *spec.results) if t is not None]
        return spec["rows"].dtype in FLOATS and all(t.is_static and 0 not in t.shape for t in types)

    def write(self, op: ir.Operation, name: str) -> tuple[ir.Operation, dict[str, ir.Value]]:
        """Replace ``op`` by a kernel; return it and its results that are read, by name. Erases ``op``."""
        call = self._reader.read(op)
        target = call.spec.target
        given = _operands(call)
        olds = {role: old for role, old in zip(_MADE[target], op.results, strict=True) if is_read(old)}
        made = {role: type_of(old) for role, old in olds.items()}
        if target == FORWARD:
            made["wrong"] = TensorType((), call.spec["index"].dtype)
        roles = [role for role in _OF[target] if role in made]
        types = [made[role] for role in roles]
        tensors, at = list(given.values()), At(loc=op.location, ip=ir.InsertionPoint(op))
        inner, values, kernel_op, inside = write_kernel(name, tensors, types, self._symbols, **at)
        if target == FORWARD:
            results = linear_cross_entropy(inner, **inside)
            kernel_op.attributes[CHECKS] = write_checks({roles.index("wrong"): MESSAGE}, op.context)
        else:
            named = dict(zip(given, inner, strict=True))
            results = linear_cross_entropy_backward(named, call.spec["scale"], **inside)
        found = dict(zip(_OF[target], results, strict=True))
        yield_values([found[role] for role in roles], **inside)
        news = dict(zip(roles, values, strict=True))
        for role, old in olds.items():
            old.replace_all_uses_with(news[role])
        op.erase()
        return kernel_op, news


def _operands(call: Call) -> dict[str, ir.Value]:
    """Return the tensors of a call by schema name, in the order of the operands of ``kern``'s op."""
    named = zip(parameters(call.spec.target), call.spec.args, strict=True)
    read = [name for (name, _, _), arg in named if isinstance(arg, TensorType)]
    return dict(zip(read, call.operands, strict=True))
