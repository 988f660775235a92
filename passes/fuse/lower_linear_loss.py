"""``shardc::linear_cross_entropy`` and its backward, which ``torch.compile``'s graphs hold, as kernels of their own."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.call import Call, CallReader
from shardc.dialects.aten.schema import parameters
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.attention_maps import FLOATS
from shardc.dialects.kern.kernel import CHECKS, kernel, write_checks
from shardc.dialects.kern.linear_cross_entropy import MADE, linear_cross_entropy
from shardc.dialects.kern.linear_cross_entropy_backward import linear_cross_entropy_backward
from shardc.dialects.kern.types import builtin_type
from shardc.dialects.kern.yield_op import yield_values

FORWARD = "shardc.linear_cross_entropy"
BACKWARD = f"{FORWARD}_backward"
LINEAR_LOSSES = (FORWARD, BACKWARD)
MESSAGE = "Target {} is out of bounds."
"""What ATen's own loss says."""
_MADE = {FORWARD: ("logp", "lse", "total"), BACKWARD: ("drows", "dweight", "dbias")}
_OF = {FORWARD: MADE, BACKWARD: _MADE[BACKWARD]}
"""The results of an op of ``kern``, of which those of a call are a part."""


class LinearLossKernels:
    """Turns calls of a block into kernels."""

    def __init__(self, block: ir.Block) -> None:
        self._reader, self._context = CallReader(), block.owner.context

    def has(self, op: ir.Operation) -> bool:
        """Whether there is a kernel for a call: of floats of at most 32 bits, and sizes that are numbers."""
        spec = self._reader.read(op).spec
        types = [t for t in (*spec.tensors, *spec.results) if t is not None]
        return spec["rows"].dtype in FLOATS and all(t.is_static and 0 not in t.shape for t in types)

    def write(self, op: ir.Operation, name: str) -> ir.Operation:
        """The kernel that stands in place of ``op``, of which it makes what is read; ``op`` is erased."""
        call = self._reader.read(op)
        loc, ip = op.location, ir.InsertionPoint(op)
        given = _operands(call)
        made = {role: type_ for role, type_, old in zip(_MADE[call.spec.target], call.spec.results, op.results, strict=True)
                if any(True for _ in old.uses)}  # fmt: skip
        if call.spec.target == FORWARD:
            made["wrong"] = TensorType((), call.spec["index"].dtype)
        roles = [role for role in _OF[call.spec.target] if role in made]
        arguments = [builtin_type(self._reader.tensor_type(v.type), self._context) for v in given.values()]
        types = [made[role] for role in roles]
        body, values, kernel_op = kernel(name, list(given.values()), arguments, types, loc=loc, ip=ip)
        inside = ir.InsertionPoint(body)
        if call.spec.target == FORWARD:
            results = linear_cross_entropy(list(body.arguments), loc=loc, ip=inside)
            kernel_op.attributes[CHECKS] = write_checks({roles.index("wrong"): MESSAGE}, self._context)
        else:
            inner = dict(zip(given, body.arguments, strict=True))
            results = linear_cross_entropy_backward(inner, 1.0, loc=loc, ip=inside)
        yield_values(
            [r for role, r in zip(_OF[call.spec.target], results, strict=True) if role in made],
            loc=loc,
            ip=inside,
        )
        news = dict(zip(roles, values, strict=True))
        for role, old in zip(_MADE[call.spec.target], op.results, strict=True):
            if role in news:
                old.replace_all_uses_with(news[role])
        op.erase()
        return kernel_op


def _operands(call: Call) -> dict[str, ir.Value]:
    """The tensors of a call by their names in the schema, in the order of ``kern``'s operands of the same names."""
    names = [name for name, _, _ in parameters(call.spec.target)]
    read = [name for name, arg in zip(names, call.spec.args, strict=True) if isinstance(arg, TensorType)]
    found = dict(zip(read, call.operands, strict=True))
    return {
        role: found[role]
        for role in ("grad", "rows", "weight", "index", "lse", "bias", "spread")
        if role in found
    }
