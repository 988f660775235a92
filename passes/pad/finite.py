"""Which calls make finite numbers of finite numbers: where padding is finite,
zeros need be put in one factor of a product only.
"""

from __future__ import annotations

from math import isfinite

import torch

from shardc.dialects.aten.call import leaves
from shardc.passes.manager.program import Node

_ALWAYS = frozenset(
    f"aten.{name}"
    for name in (
        "add.Tensor",
        "sub.Tensor",
        "rsub.Tensor",
        "mul.Tensor",
        "add.Scalar",
        "sub.Scalar",
        "rsub.Scalar",
        "mul.Scalar",
        "div.Scalar",
        "neg",
        "abs",
        "square",
        "sigmoid",
        "silu",
        "gelu",
        "tanh",
        "relu",
        "leaky_relu",
        "erf",
        "cos",
        "sin",
        "clamp",
        "maximum",
        "minimum",
        "sigmoid_backward",
        "silu_backward",
        "gelu_backward",
        "tanh_backward",
        "threshold_backward",
        "leaky_relu_backward",
        "where.ScalarSelf",
        "where.ScalarOther",
        "masked_fill.Scalar",
        "clone",
        "alias",
        "detach",
        "view",
        "_unsafe_view",
        "reshape",
        "expand",
        "permute",
        "transpose.int",
        "t",
        "unsqueeze",
        "squeeze",
        "squeeze.dim",
        "squeeze.dims",
        "slice.Tensor",
        "slice_backward",
        "select.int",
        "select_backward",
        "cat",
        "stack",
        "split.Tensor",
        "constant_pad_nd",
        "full",
        "zeros",
        "ones",
        "arange",
        "full_like",
        "zeros_like",
        "ones_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "repeat",
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "matmul",
        "linear",
        "sum",
        "sum.dim_IntList",
        "mean",
        "mean.dim",
        "amax",
        "amin",
        "convolution",
        "embedding",
        "embedding_dense_backward",
        "index.Tensor",
        "index_select",
        "gather",
        "scatter.value",
        "native_layer_norm",
        "native_layer_norm_backward",
        "_softmax",
        "_log_softmax",
        "_softmax_backward_data",
        "_log_softmax_backward_data",
    )
) | {"shardc.uniform", "shardc.attention", "shardc.attention_backward"}

CHOOSE = ("aten.where.self", "aten.masked_fill.Tensor")
_CASTS = ("aten._to_copy", "prims.convert_element_type")

LOSES = frozenset(
    f"aten.{name}" for name in ("rsqrt", "sqrt", "reciprocal", "div.Tensor", "log", "pow.Tensor_Scalar")
)
"""Calls whose padding is worth being filled at once: most are of a number a row, and all after them is finite
again.
"""


def stays_finite(node: Node, factor: str) -> bool:
    """Whether finite padding of ``factor`` in all operands leaves finite padding in the results."""
    spec, rule = node.spec, node.rule
    has = [any(factor in dim for dim in dims) for dims in rule.operands]
    if node.op.name.startswith("dist."):
        return True
    numbers = [a for a in leaves(spec.args) if isinstance(a, float)]
    if spec.target in _CASTS:
        return all(t is None or t.dtype != torch.float16 for t in spec.results)
    if spec.target == "aten.div.Tensor":
        return not any(has[1:])
    if spec.target == "aten.pow.Tensor_Scalar":
        return spec["exponent"] >= 0 and spec["exponent"] == int(spec["exponent"])
    if spec.target in CHOOSE:  # what is no padding may be infinite, and be chosen nowhere but in padding
        return all(there or not t.dtype.is_floating_point for there, t in zip(has, spec.tensors, strict=True))
    if spec.target.startswith("shardc.attention") and spec["mask"] is not None:
        return False  # a row whose columns are all masked
    if spec.target == "aten.native_layer_norm" and spec["eps"] <= 0:
        return False
    return spec.target in _ALWAYS and all(map(isfinite, numbers))
