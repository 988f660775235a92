"""Calls with finite results for finite operands, so that zeros in one factor of a product suffice."""

from __future__ import annotations

from itertools import chain
from math import isfinite

import torch

from shardc.dialects.aten.call import leaves
from shardc.passes.manager.program import Node

_ADDITIONS = ("add.Tensor", "sub.Tensor", "rsub.Tensor", "add.Scalar", "sub.Scalar", "rsub.Scalar")
_PRODUCTS = ("mul.Tensor", "mul.Scalar", "div.Scalar", "square", "mm", "bmm", "addmm", "baddbmm", "matmul")
_LAYERS = ("linear", "convolution", "native_layer_norm", "native_layer_norm_backward")
_POINTWISE = ("neg", "abs", "erf", "cos", "sin", "clamp", "maximum", "minimum")
_ACTIVATIONS = ("sigmoid", "silu", "gelu", "tanh", "relu", "leaky_relu", "_softmax", "_log_softmax")
_GRADIENTS = (*(f"{name}_backward" for name in _ACTIVATIONS[:4]), "leaky_relu_backward", "threshold_backward")
_SOFTMAX_GRADIENTS = ("_softmax_backward_data", "_log_softmax_backward_data")
_CHOICES = ("where.ScalarSelf", "where.ScalarOther", "masked_fill.Scalar")
_COPIES = ("clone", "alias", "detach", "view", "_unsafe_view", "reshape", "expand", "repeat")
_TRANSPOSES = ("permute", "transpose.int", "t", "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims")
_PARTS = ("slice.Tensor", "slice_backward", "select.int", "select_backward", "split.Tensor")
_JOINS = ("cat", "stack", "constant_pad_nd")
_CREATIONS = ("full", "zeros", "ones", "arange", "full_like", "zeros_like", "ones_like")
_REDUCTIONS = ("sum", "sum.dim_IntList", "mean", "mean.dim", "amax", "amin")
_LOOKUPS = ("embedding", "embedding_dense_backward", "index.Tensor", "index_select", "gather")
_WRITES = ("scatter.value", "new_zeros", "new_ones", "new_full")
_ALWAYS = frozenset(
    f"aten.{name}"
    for name in chain(
        (*_ADDITIONS, *_PRODUCTS, *_LAYERS, *_POINTWISE, *_ACTIVATIONS, *_GRADIENTS, *_SOFTMAX_GRADIENTS),
        (*_CHOICES, *_COPIES, *_TRANSPOSES, *_PARTS, *_JOINS, *_CREATIONS, *_REDUCTIONS, *_LOOKUPS, *_WRITES),
    )
) | {"shardc.uniform", "shardc.attention", "shardc.attention_backward"}

CHOOSE = ("aten.where.self", "aten.masked_fill.Tensor")
_CASTS = ("aten._to_copy", "prims.convert_element_type")

LOSES = frozenset(
    f"aten.{name}" for name in ("rsqrt", "sqrt", "reciprocal", "div.Tensor", "log", "pow.Tensor_Scalar")
)
"""Calls that may give infinities. Filling their padding at once is cheap, and keeps later padding finite."""


def stays_finite(node: Node, factor: str) -> bool:
    """Return whether finite padding of ``factor`` in all operands gives finite padding in the results."""
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
    if spec.target in CHOOSE:  # true elements may be infinite and be selected only in padding
        return all(there or not t.dtype.is_floating_point for there, t in zip(has, spec.tensors, strict=True))
    if spec.target.startswith("shardc.attention") and spec["mask"] is not None:
        return False  # a row whose columns are all masked
    if spec.target == "aten.native_layer_norm" and spec["eps"] <= 0:
        return False
    return spec.target in _ALWAYS and all(map(isfinite, numbers))
