"""Corrections of PyTorch's fake tensors where they mispredict ATen's results, applied during tracing.

A traced program is compiled for the dtypes, shapes and strides that fake tensors predict. ``CORRECTIONS`` is
the one table of wrong predictions: an entry takes an operator's prediction and its arguments, and returns the
results of ATen. ``test/zoo/fake_results.py`` demonstrates each entry by comparing predictions with results
over PyTorch's operator database. Mispredictions missing from the table are found at a program's first run
(``runtime/first_run.py``).

Both front ends add :func:`with_corrections` to their decompositions, so that all later tracing sees the
corrected tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, get_proxy_mode, track_tensor_tree

from shardc.frontend.operators import Table
from shardc.runtime.torch_private import (
    OpOverload,
    channels_last_strides,
    elementwise_strides,
    pytree,
    suggested_memory_format,
)

aten = torch.ops.aten
Made = Sequence[Tensor]
Maybe = Tensor | None
Correction = TypeVar("Correction", bound=Callable[..., object])
CORRECTIONS: Table = {}
"""Functions of a prediction and the call's arguments; each returns correct predicted tensors unchanged."""
ONLY: dict[OpOverload, Callable[[Sequence[object]], bool]] = {}
"""For common operators: whether a prediction for these arguments can be wrong at all."""

_HALF = (torch.float16, torch.bfloat16)
_INDICES = (torch.int32, torch.int64)


def correction_table() -> Table:
    """Return a decomposition for each operator of the table: the call itself with corrected results."""
    return {op: partial(_traced, op) for op in CORRECTIONS}


def with_corrections(table: Table) -> Table:
    """Extend a table of decompositions so that calls it keeps have corrected results."""
    found = correction_table()
    return {
        **table,
        **{op: _first_of(table[op], call) if op in table else call for op, call in found.items()},
    }


def _first_of(first: Callable[..., object], second: Callable[..., object]) -> Callable[..., object]:
    def chosen(*args: object, **kwargs: object) -> object:
        made = first(*args, **kwargs)
        return second(*args, **kwargs) if made is NotImplemented else made

    return chosen


def corrected(
    op: Callable[..., object], made: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """Correct ``made``, the prediction for ``op(*args, **kwargs)``; return ``made`` itself if it is right."""
    if not isinstance(op, OpOverload) or op not in CORRECTIONS:
        return made
    right = CORRECTIONS[op](made, *args, **kwargs)
    pairs = zip(pytree.tree_leaves(made), pytree.tree_leaves(right), strict=True)
    return made if all(a is b for a, b in pairs) else right


def _traced(op: OpOverload, *args: object, **kwargs: object) -> object:
    """Record the call with corrected results; NotImplemented keeps a call that is predicted right."""
    if op in ONLY and not ONLY[op](args):
        return NotImplemented
    with disable_proxy_modes_tracing():
        made = op(*args, **kwargs)
        right = corrected(op, made, args, kwargs)
    mode = get_proxy_mode()
    if right is made or mode is None:
        return NotImplemented
    proxies = pytree.tree_map(mode.tracer.unwrap_proxy, (args, kwargs))
    call = mode.tracer.create_proxy("call_function", op, *proxies)
    return track_tensor_tree(right, call, constant=None, tracer=mode.tracer)


def _corrects(*ops: OpOverload) -> Callable[[Correction], Correction]:
    def register(correction: Correction) -> Correction:
        CORRECTIONS.update(dict.fromkeys(ops, correction))
        return correction

    return register


def _as(made: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``made`` in ``dtype``; None for a result that the call does not compute."""
    if made is None or made.dtype == dtype:
        return made
    return made.new_empty_strided(made.shape, made.stride(), dtype=dtype)


def _contiguous(made: Tensor) -> Tensor:
    return made if not _is_symbolic(made) and made.is_contiguous() else made.new_empty(made.shape)


def _like(made: Tensor, x: Tensor) -> Tensor:
    """Return ``made`` with the layout that ``empty_like`` gives ``x``, which has its shape."""
    right = torch.empty_like(x, dtype=made.dtype)
    return made if not _is_symbolic(made) and made.stride() == right.stride() else right


def _as_channels_of(made: Tensor, x: Tensor) -> Tensor:
    """Return ``made`` in channels-last layout on a CPU if ``x`` has that."""
    if x.device.type != "cpu" or _is_symbolic(made) or x.dim() != 4:
        return made
    right = channels_last_strides(made.shape)
    is_wrong = suggested_memory_format(x) is torch.channels_last and made.stride() != tuple(right)
    return made.new_empty_strided(made.shape, right) if is_wrong else made


def _is_symbolic(made: Tensor) -> bool:
    return any(isinstance(n, torch.SymInt) for n in (*made.shape, *made.stride()))


def _statistics(made: Made, x: Tensor, *params: Maybe) -> Made:
    """Correct mean and rstd to f32 for 16-bit input with f32 parameters on a CPU.

    See ATen/native/cpu/mixed_data_type.h.

    They are predicted in the input's dtype.
    """
    mixed = x.dtype in _HALF and any(p is not None and p.dtype == torch.float32 for p in params)
    if x.device.type != "cpu" or not mixed:
        return made
    return made[0], _as(made[1], torch.float32), _as(made[2], torch.float32), *made[3:]


@_corrects(aten.native_layer_norm.default)
def _layer_norm(
    made: Made, x: Tensor, shape: object, weight: Maybe = None, bias: Maybe = None, *_: object
) -> Made:
    return _statistics(made, x, weight, bias)


@_corrects(aten.native_layer_norm_backward.default)
def _layer_norm_backward(
    made: Made,
    grad: Tensor,
    x: Tensor,
    shape: object,
    mean: Tensor,
    rstd: Tensor,
    weight: Maybe,
    bias: Maybe,
    *_: object,
) -> Made:
    """Correct parameter gradients of an empty batch, which are predicted in the input's dtype.

    The input's gradient is contiguous on a CPU, but predicted with the input's layout.
    """
    dtypes = [None if parameter is None else parameter.dtype for parameter in (weight, bias)]
    own = made[0] if made[0] is None or x.device.type != "cpu" else _contiguous(made[0])
    return own, *(m if d is None else _as(m, d) for m, d in zip(made[1:], dtypes, strict=True))


@_corrects(
    aten.native_group_norm.default,
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_no_training.default,
)
def _norm(made: Made, x: Tensor, weight: Maybe, bias: Maybe, *_: object) -> Made:
    return _statistics(made, x, weight, bias)


@_corrects(aten.native_group_norm_backward.default)
def _group_norm_backward(
    made: Made, grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Maybe, *_: object
) -> Made:
    """Correct gradients to the dtypes of their tensors; the prediction promotes the arguments."""
    dtype = mean.dtype if weight is None else weight.dtype
    return _as(made[0], x.dtype), _as(made[1], dtype), _as(made[2], dtype)


@_corrects(aten._native_batch_norm_legit_functional.default, aten._batch_norm_with_update_functional.default)
def _batch_norm(
    made: Made, x: Tensor, weight: Maybe, bias: Maybe, mean: Tensor, var: Tensor, *_: object
) -> Made:
    """Correct running statistics to their own dtype; the prediction is f32."""
    *first, new_mean, new_var = _statistics(made, x, weight, bias)
    return *first, _as(new_mean, mean.dtype), _as(new_var, var.dtype)


@_corrects(aten.soft_margin_loss_backward.default)
def _loss_backward(made: Tensor, grad: Tensor, x: Tensor, *_: object) -> Tensor:
    """Correct to the dtype of the input; the prediction is its promoted dtype with the target."""
    return _as(made, x.dtype)


@_corrects(
    aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default, aten.huber_loss_backward.default
)
def _contiguous_loss_backward(made: Tensor, grad: Tensor, x: Tensor, *_: object) -> Tensor:
    """Correct to the dtype of the input, contiguous; the prediction follows the operands' layout."""
    return _contiguous(_as(made, x.dtype))


@_corrects(aten.huber_loss.default, aten.soft_margin_loss.default, aten.normal.Tensor_Tensor)
def _of_the_first(made: Tensor, x: Tensor, *_: object, **options: object) -> Tensor:
    """Correct to the dtype of the first argument; the prediction is the promoted dtype of both."""
    return _as(made, x.dtype)


@_corrects(aten.binary_cross_entropy.default)
def _cross_entropy(
    made: Tensor, x: Tensor, target: Tensor, weight: Maybe = None, reduction: int = 1
) -> Tensor:
    """Correct to the input's layout without a reduction; the prediction is the layout of all operands."""
    return made if reduction else _like(made, x)


@_corrects(aten.binary_cross_entropy_backward.default)
def _cross_entropy_backward(made: Tensor, grad: Tensor, x: Tensor, *_: object) -> Tensor:
    """Correct to the input's layout for any reduction; the prediction is the layout of all operands."""
    return _like(made, x)


@_corrects(aten.log_sigmoid_forward.default)
def _log_sigmoid(made: Made, x: Tensor) -> Made:
    """Correct to contiguous on a CPU; the prediction is the input's layout."""
    return made if x.device.type != "cpu" else (_contiguous(made[0]), _contiguous(made[1]))


@_corrects(aten._log_softmax_backward_data.default, aten.nll_loss2d_forward.default, aten.pow.Scalar)
def _always_contiguous(made: Tensor | Made, *args: object, **_: object) -> Tensor | Made:
    """Correct to contiguous on a CPU; the prediction is an operand's layout."""
    if any(isinstance(x, Tensor) and x.device.type != "cpu" for x in args):
        return made
    return _contiguous(made) if isinstance(made, Tensor) else (_contiguous(made[0]), *made[1:])


@_corrects(
    aten.copysign.Tensor,
    aten.div.Tensor_mode,
    aten.floor_divide.default,
    aten.heaviside.default,
    aten.logaddexp.default,
    aten.logaddexp2.default,
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
    aten.logit_backward.default,
    aten.special_xlog1py.default,
    aten.xlogy.Tensor,
)
def _iterated(made: Tensor, *args: object, **_: object) -> Tensor:
    """Correct to TensorIterator's joint layout of the operands; the prediction is the layout of one."""
    operands = [x for x in args if isinstance(x, Tensor)]
    if _is_symbolic(made) or any(map(_is_symbolic, operands)):
        return made
    strides = elementwise_strides(*torch.broadcast_tensors(*operands))
    return made if made.stride() == strides else made.new_empty_strided(made.shape, strides)


def _begins_with_an_expanded_half(args: Sequence[object]) -> bool:
    first = args[0]
    if not isinstance(first, Tensor) or not any(isinstance(x, Tensor) and x.dtype in _HALF for x in args):
        return False
    sizes = zip(first.shape, first.stride(), strict=True)
    return not _is_symbolic(first) and any(n != 1 and stride == 0 for n, stride in sizes)


_IN_F32 = (
    aten.add.Tensor,
    aten.atan2.default,
    aten.clamp_max.Tensor,
    aten.clamp_min.Tensor,
    aten.div.Tensor,
    aten.eq.Tensor,
    aten.fmax.default,
    aten.fmin.default,
    aten.fmod.Tensor,
    aten.ge.Tensor,
    aten.gelu_backward.default,
    aten.gt.Tensor,
    aten.hypot.default,
    aten.igamma.default,
    aten.igammac.default,
    aten.le.Tensor,
    aten.lt.Tensor,
    aten.maximum.default,
    aten.minimum.default,
    aten.mul.Tensor,
    aten.ne.Tensor,
    aten.pow.Tensor_Tensor,
    aten.remainder.Tensor,
    aten.sigmoid_backward.default,
    aten.silu_backward.default,
    aten.sub.Tensor,
    aten.tanh_backward.default,
)
"""Operators that PyTorch predicts in f32 for 16-bit floats.

An expanded first operand, such as the gradient of a sum, becomes contiguous on the way, and so does the
predicted result.
"""
ONLY.update(dict.fromkeys(_IN_F32, _begins_with_an_expanded_half))


@_corrects(*_IN_F32)
def _iterated_halves(made: Tensor, *args: object, **_: object) -> Tensor:
    """Correct to TensorIterator's joint layout of operands; expanded 16-bit ones are predicted contiguous."""
    return _iterated(made, *args) if _begins_with_an_expanded_half(args) else made


@_corrects(aten.ldexp.Tensor)
def _ldexp(made: Tensor, x: Tensor, exponent: Tensor) -> Tensor:
    """Correct to the layout of a product with a contiguous power of 2; the prediction uses both operands."""
    return _iterated(made, x, exponent.new_empty(exponent.shape))


@_corrects(aten.native_dropout_backward.default)
def _dropout_backward(made: Tensor, grad: Tensor, *_: object) -> Tensor:
    """Correct to the gradient's layout; the prediction is contiguous."""
    return _like(made, grad)


@_corrects(aten.resize_as.default)
def _resize_as(made: Tensor, x: Tensor, template: Tensor, **_: object) -> Tensor:
    """Correct to the tensor's own layout if it has that size already; the prediction is contiguous."""
    return _like(made, x) if x.shape == template.shape else made


@_corrects(
    aten.channel_shuffle.default,
    aten.reflection_pad2d_backward.default,
    aten.replication_pad2d_backward.default,
)
def _channels_last(made: Tensor, *args: object) -> Tensor:
    """Correct to channels last on a CPU if the input is; the prediction is contiguous."""
    x = args[-2]
    assert isinstance(x, Tensor)
    return _as_channels_of(made, x)


@_corrects(aten.max_unpool2d.default)
def _max_unpool(made: Tensor, x: Tensor, *_: object) -> Tensor:
    """Correct to channels last on a CPU if the input is; the prediction is contiguous."""
    return _as_channels_of(made, x)


@_corrects(aten.index.Tensor)
def _index(made: Tensor, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Correct to TensorIterator's layout on a CPU, which depends on the indices.

    See ATen/native/TensorAdvancedIndexing.cpp.

    The prediction follows the tensor's own strides, and lacks dims if the last index has none.
    """
    given = [number for number, index in enumerate(indices) if index is not None]
    parts = [index for index in indices if index is not None]
    is_known = not _is_symbolic(made) and not _is_symbolic(x) and all(p.dtype in _INDICES for p in parts)
    if x.device.type != "cpu" or not is_known:
        return made
    parts = torch.broadcast_tensors(*parts)
    before = given[0] if given[-1] - given[0] == len(given) - 1 else 0
    kept = [d for d in range(x.dim()) if d not in given]
    first, last = kept[:before], kept[before:]
    shape = [*map(x.size, first), *parts[0].shape, *map(x.size, last)]
    forms = [[*map(x.stride, first), *[0] * parts[0].dim(), *map(x.stride, last)]]
    for part in parts:
        seen = part.reshape([1] * len(first) + list(part.shape) + [1] * len(last))
        dims = zip(seen.shape, shape, seen.stride(), strict=True)
        forms.append([0 if n == 1 != size else stride for n, size, stride in dims])
    strides = elementwise_strides(*(x.new_empty_strided(shape, form) for form in forms))
    is_right = (list(made.shape), made.stride()) == (shape, strides)
    return made if is_right else made.new_empty_strided(shape, strides)
