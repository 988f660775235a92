"""What may stand in a kernel's body, and in the region of one of its ``linalg`` ops."""

from torch_mlir import ir

from shardc.dialects.dist.verifier import Illegal
from shardc.dialects.kern.types import read_builtin
from shardc.dialects.kern.yield_op import PACK

INDEX = frozenset(("arith.constant", "arith.muli", "arith.addi"))
STRUCTURED = frozenset(
    ("linalg.generic", "linalg.fill", "kern.attention", "kern.attention_backward", "kern.grouped_matmul",
     "kern.linear_cross_entropy", "kern.linear_cross_entropy_backward", "kern.scatter_add")
)  # fmt: skip
TENSOR = frozenset(("tensor.empty", "tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice"))
IN_GENERIC = frozenset(("linalg.yield", "linalg.index", "tensor.extract"))
SCALAR_DIALECTS = ("arith.", "math.")


def check_body_op(op: ir.Operation) -> None:
    """Raises Illegal for an op that a kernel's body may not hold, or that makes a tensor which kernels do not take."""
    name = op.name
    if name == PACK:
        if any(use.owner.name != "kern.yield" for use in op.results[0].uses):
            raise Illegal(f"its body may pack values ({PACK}) for its kern.yield only")
        return
    on_index = name in INDEX and isinstance(op.results[0].type, ir.IndexType)
    if name not in STRUCTURED and name not in TENSOR and name != "arith.constant" and not on_index:
        raise Illegal(f"its body may not hold {name}")
    for result in op.results:
        if isinstance(result.type, ir.RankedTensorType) and read_builtin(result.type) is None:
            raise Illegal(f"its body makes a {result.type} ({name}), a type that kernels do not take")
    if name == "linalg.generic":
        for inner in op.regions[0].blocks[0].operations:
            inner_name = inner.operation.name
            if inner_name not in IN_GENERIC and not inner_name.startswith(SCALAR_DIALECTS):
                raise Illegal(f"a linalg.generic of its body may not hold {inner_name}")
