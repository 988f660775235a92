"""Ops that are allowed in a kernel's body, and in the region of one of its ``linalg`` ops."""

from torch_mlir import ir

from shardc.dialects.dist.verifier import Illegal
from shardc.dialects.kern.generic import GENERIC
from shardc.dialects.kern.types import read_builtin
from shardc.dialects.kern.yield_op import PACK

INDEX = frozenset(("arith.constant", "arith.muli", "arith.addi"))
LINALG = frozenset(("linalg.generic", "linalg.fill"))
NOT_INSIDE = frozenset(("kern.extern", "kern.kernel", "kern.yield"))
"""The ops of ``kern`` that are not structured kernels."""
TENSOR = frozenset(("tensor.empty", "tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice"))
IN_GENERIC = frozenset(("linalg.yield", "linalg.index", "tensor.extract"))
SCALAR_DIALECTS = ("arith.", "math.")


def check_body_op(op: ir.Operation) -> None:
    """Check an op of a body. Raises Illegal if the op or the type of its result is not allowed."""
    name = op.name
    if name == PACK:
        if any(use.owner.name != "kern.yield" for use in op.results[0].uses):
            raise Illegal(f"its body may pack values ({PACK}) for its kern.yield only")
        return
    on_index = name in INDEX and isinstance(op.results[0].type, ir.IndexType)
    structured = name.startswith("kern.") and name not in NOT_INSIDE
    if not structured and name not in LINALG | TENSOR | {"arith.constant"} and not on_index:
        raise Illegal(f"its body may not hold {name}")
    for result in op.results:
        if isinstance(result.type, ir.RankedTensorType) and read_builtin(result.type) is None:
            raise Illegal(f"its body makes a {result.type} ({name}), a type that kernels do not take")
    if name == GENERIC:
        _check_generic(op)
    elif name == "tensor.extract_slice":
        _check_slice(op)


def _check_generic(op: ir.Operation) -> None:
    for inner in op.regions[0].blocks[0].operations:
        name = inner.operation.name
        if name not in IN_GENERIC and not name.startswith(SCALAR_DIALECTS):
            raise Illegal(f"a linalg.generic of its body may not hold {name}")
    for attribute in op.attributes["indexing_maps"]:
        if not ir.AffineMapAttr(attribute).value.is_projected_permutation:
            why = "each dim must follow a loop of its own"
            raise Illegal(f"a linalg.generic of its body may not have {attribute}: {why}")


def _check_slice(op: ir.Operation) -> None:
    bounds = [*op.attributes["static_offsets"], *op.attributes["static_strides"]]
    if ir.RankedTensorType(op.results[0].type).rank != len(op.attributes["static_sizes"]):
        raise Illegal("a tensor.extract_slice of its body must keep all dims")
    if ir.ShapedType.get_dynamic_size() in bounds:
        raise Illegal("a tensor.extract_slice of its body must have constant offsets and strides")
