"""Table of lowerings of ATen calls to kernels, by target. Lowerings are in the file of their op family.

A lowering takes a :class:`Builder`, the call, and a :class:`Value` for each of the call's tensors. It returns
a value for each result. It raises NotLowered for a form of the call that it does not cover. Only ops in
this table are ever fused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import torch

from shardc.dialects.aten.call import OpCall, leaves, replace_leaves
from shardc.dialects.aten.schema import parameters
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import Size, hint
from shardc.dialects.kern.types import ELEMENTS
from shardc.passes.fuse.lower.scalars import Operand, Scalar, Scalars, wide
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value

Lowering = Callable[[Builder, OpCall, Sequence[Value]], Sequence[Value | None]]
Expression = Callable[..., Scalar]
"""Function (scalars, *arguments of the call) -> result of one element.

Tensors are given as scalars of the dtype in which the op computes.
"""

_LOWERINGS: dict[str, Lowering] = {}


def lowers(*targets: str) -> Callable[[Lowering], Lowering]:
    """Register a lowering for ``targets``."""

    def register(lowering: Lowering) -> Lowering:
        _LOWERINGS.update(dict.fromkeys(targets, lowering))
        return lowering

    return register


def pointwise(targets: str, expression: Expression, *, heavy: bool = False) -> None:
    """Register ops whose tensors are cast to the dtype of the result, in which ATen computes them."""
    _register(targets, lambda b, call, values: [point(b, call, values, expression, heavy)])


def comparison(targets: str, expression: Expression) -> None:
    """Register ops whose tensors are cast to their common dtype, and whose result is a bool."""
    _register(targets, lambda b, call, values: [point(b, call, values, expression, compares=True)])


def untyped(targets: str, expression: Expression) -> None:
    """Register ops whose expressions take their operands in the original dtypes."""
    _register(targets, lambda b, call, values: [point(b, call, values, expression, as_is=True)])


def _register(targets: str, lowering: Lowering) -> None:
    lowers(*(f"aten.{target}" for target in targets.split()))(lowering)


def point(
    b: Builder,
    call: OpCall,
    values: Sequence[Value],
    expression: Expression,
    heavy: bool = False,
    as_is: bool = False,
    compares: bool = False,
    type_: TensorType | None = None,
) -> Value:
    """Add one pointwise node for the call and return its value.

    Tensors are converted to the result's dtype, or to their common dtype if ``compares``. They keep their
    dtypes if ``as_is``. ``type_``: type of the result, if the call has several.
    """
    type_ = type_ or results(call)[0]
    dtype = wide(type_.dtype)
    taken = common_dtype(call) if compares else dtype
    sizes = [leaf for leaf in leaves(call.args) if isinstance(leaf, Size)]

    def compute(s: Scalars, *operands: Scalar) -> Scalar:
        given = _bound(call, operands if as_is else [s.cast(x, taken) for x in operands])
        arguments = [s.size(a, taken) if isinstance(a, Size) else a for a in given]
        if compares:
            arguments = [s.cast(s.cast(a, taken), wide(taken)) for a in arguments]
        return expression(s, *arguments)

    return b.point(compute, values, type_, dtype=dtype, heavy=heavy, sizes=sizes)


def common_dtype(call: OpCall) -> torch.dtype:
    """Return the dtype in which ATen compares a call's operands: that of ``torch.result_type``."""
    operands = [
        torch.empty([1] * len(a.shape), dtype=a.dtype, device="meta") if isinstance(a, TensorType) else a
        for a in (1 if isinstance(a, Size) else a for a in call.args)
    ]
    dtype = call.tensors[0].dtype if len(operands) == 1 else torch.result_type(operands[0], operands[1])
    if dtype not in ELEMENTS:
        raise NotLowered(f"compares {dtype}")
    return dtype


def _bound(call: OpCall, operands: Sequence[Scalar]) -> tuple[Operand, ...]:
    """Return the call's arguments with its tensors replaced by ``operands``."""
    rest = iter(operands)
    return replace_leaves(call.args, lambda leaf: next(rest) if isinstance(leaf, TensorType) else leaf)


def given(call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """Return the values of the tensor arguments in the schema's order; None for an absent one."""
    rest = iter(values)
    tensors = [name for name, type_, _ in parameters(call.target) if "Tensor" in str(type_)]
    return [next(rest) if isinstance(call[name], TensorType) else None for name in tensors]


def results(call: OpCall) -> list[TensorType]:
    """Return the types of the call's results, without absent ones."""
    return [r for r in call.results if r is not None]


@cache
def _loaded() -> dict[str, Lowering]:
    for family in iter_modules([str(Path(__file__).parent)]):
        import_module(f"shardc.passes.fuse.lower.{family.name}")
    return _LOWERINGS


ALONE = frozenset(
    f"aten.{name}"
    for names in (
        "_native_batch_norm_legit.no_stats _native_batch_norm_legit_functional",
        "_native_batch_norm_legit_no_training _safe_softmax _softmax _to_copy exp gelu_backward",
        "masked_fill.Scalar masked_fill.Tensor mean.dim native_batch_norm_backward native_group_norm",
        "native_group_norm_backward native_layer_norm native_layer_norm_backward sigmoid silu",
        "slice_backward sum.dim_IntList tanh var.correction var_mean.correction where.ScalarOther",
        "where.ScalarSelf where.self",
        "celu elu elu_backward isinf log_sigmoid_backward log_sigmoid_forward logaddexp mish mish_backward",
        "_prelu_kernel_backward softplus softplus_backward xlogy.Tensor",
        "binary_cross_entropy_with_logits huber_loss huber_loss_backward mse_loss mse_loss_backward",
        "smooth_l1_loss smooth_l1_loss_backward soft_margin_loss",
        "cummax cummin cumprod cumsum",
        "any.dim argmax argmin linalg_vector_norm logsumexp max.dim min.dim norm.ScalarOpt_dim",
        "_unsafe_index.Tensor pixel_shuffle pixel_unshuffle reflection_pad2d repeat",
        "avg_pool2d avg_pool2d_backward max_pool2d_with_indices max_pool2d_with_indices_backward",
        "avg_pool3d avg_pool3d_backward max_pool3d_with_indices max_pool3d_with_indices_backward",
        "_adaptive_avg_pool2d",
        "erf exp2 expm1 frac isnan log log1p log2 round sqrt tril triu trunc",
        "eq.Scalar eq.Tensor ge.Scalar ge.Tensor gt.Scalar gt.Tensor le.Scalar le.Tensor lt.Scalar lt.Tensor",
        "ne.Scalar ne.Tensor __lshift__.Scalar __lshift__.Tensor __rshift__.Scalar __rshift__.Tensor",
        "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor",
        "bitwise_right_shift.Tensor_Scalar _log_softmax_backward_data _prelu_kernel _softmax_backward_data",
        "all binary_cross_entropy binary_cross_entropy_backward constant_pad_nd norm.Scalar",
        "replication_pad2d silu_backward unfold_backward",
        "col2im im2col",
        "acos acosh asin asinh atan atan2 atanh cos cosh log10 sin sinh tan",
    )
    for name in names.split()
)
"""Calls that become a kernel even if no other call is fused with them, because ATen is slower.

Measured on one thread with 512 x 1024 f32: ATen takes 3.0 times as long for exp, 7.7 for where, 1.5 for
softmax, 1.6 for layer norm, 2.0 for its gradient, 2.2 for a sum over rows. Additions, amax and copies are
not faster. ``test/bench/kernel_alone.py`` measured 16 lines before the last two, except for the gradient of
three-dimensional max pooling, which takes 0.81 of ATen's time by another script. ``im2col`` and
``col2im`` take 0.35 to 0.57 of ATen's time, 1.02 in one case; the functions of the last line 0.13 to 1.0.
Only short scans are lowered; 16 steps take a tenth of ATen's time.
"""
ALONE_ELEMENTS = 1 << 12
"""Least number of elements of the largest tensor of such a call; below, the overhead of a call dominates."""


def _along_last(call: OpCall) -> bool:
    return call["dim"] in (-1, len(call.tensors[0].shape) - 1)


def _finds_many(call: OpCall) -> bool:
    return hint(results(call)[0].numel) >= ALONE_ELEMENTS


def _stacks_last(call: OpCall) -> bool:
    return call["dim"] in (-1, len(call.tensors[0].shape))


_ALONE_IF: dict[str, Callable[[OpCall], bool]] = {
    "aten._log_softmax": _along_last,
    "aten.gather": lambda call: _finds_many(call) and not _along_last(call),
    "aten.gelu": lambda call: call["approximate"] == "tanh",
    "aten.index.Tensor": _finds_many,
    "aten.pow.Tensor_Scalar": lambda call: call["exponent"] not in (0, 1, 2, 3),
    "aten.pow.Tensor_Tensor": lambda call: call.tensors[0].dtype.is_floating_point,
    "aten.stack": _stacks_last,
}
"""Calls that belong to :data:`ALONE` with some arguments only.

By ``test/bench/kernel_alone.py``, indexing by tensors takes 0.23 to 0.94 of ATen's time as a kernel (65,536
elements, rows of 1 to 512), ``gather`` 0.43 to 0.54, but 1.40 along the last dim. Embeddings and
``index_select`` of more than four columns take 1.1 to 1.8.
"""


OWN = frozenset(["shardc.flat_index"])
"""Operators of shardc that call several of ATen, so that a kernel is faster whatever the size is."""


def is_worth_alone(call: OpCall) -> bool:
    """Return whether a kernel of only this call is faster than ATen."""
    if call.target in OWN:
        return True
    faster = _ALONE_IF[call.target](call) if call.target in _ALONE_IF else call.target in ALONE
    return faster and max((hint(t.numel) for t in call.tensors), default=0) >= ALONE_ELEMENTS


def lower(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value | None]:
    """Lower a call: return the values of its results, and add its nodes to ``b``. Raises NotLowered."""
    lowering = _loaded().get(call.target)
    if lowering is None:
        raise NotLowered("has no lowering to a kernel")
    read = () if call.target == "aten.cat" else call.tensors  # of parts, some may be empty
    if any(0 in t.shape for t in (*read, results(call)[0])):
        raise NotLowered("has an empty tensor")
    return list(lowering(b, call, values))


def lowered_targets() -> frozenset[str]:
    """Return the targets with a lowering."""
    return frozenset(_loaded())
