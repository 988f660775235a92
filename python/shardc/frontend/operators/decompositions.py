"""Decompositions of ATen ops into simpler ones, which need fewer sharding rules and keep sums partial.

Means, variances, norms and losses become sums and pointwise ops: a sum over a sharded dim is a partial value,
a mean is not. Splits become slices, and gradients of slices become pads. Fused ops with kernels stay:
softmax, layer and group norm, convolution, pooling, embedding, activations and their gradients.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from shardc.frontend.operators import Table
from shardc.frontend.operators.complex_numbers import complex_table, complex_tensor
from shardc.frontend.operators.refused import refusal_table
from shardc.runtime.torch_private import check, disable_current_modes, get_decompositions

aten = torch.ops.aten
Tensor = torch.Tensor
Dims = Sequence[int] | int | None

# PyTorch's own decompositions; their results contain ops of this table again.
_FROM_TORCH = (
    *(aten.addmv, aten.addr, aten.baddbmm, aten.dot, aten.mv, aten.vdot),
    *(aten._fused_rms_norm, aten._fused_rms_norm_backward, aten.norm, aten.rrelu_with_noise_backward),
    *(aten._native_batch_norm_legit, aten._native_batch_norm_legit_functional),
    *(aten._native_batch_norm_legit_no_training, aten._batch_norm_no_update),
    *(aten._batch_norm_with_update, aten._batch_norm_with_update_functional),
    *(aten.native_batch_norm, aten.native_batch_norm_backward, aten.batch_norm_backward),
    *(aten.binary_cross_entropy, aten.binary_cross_entropy_backward, aten.binary_cross_entropy_with_logits),
    *(aten.huber_loss, aten.huber_loss_backward, aten.mse_loss, aten.mse_loss_backward),
    *(aten.nll_loss_forward, aten.nll_loss_backward, aten.nll_loss2d_forward, aten.nll_loss2d_backward),
    *(aten.smooth_l1_loss, aten.smooth_l1_loss_backward),
    *(aten.soft_margin_loss, aten.soft_margin_loss_backward),
)


@functools.cache
def decomposition_table() -> Table:
    """Return the decompositions of a trace, by op overload."""
    return {**complex_table(), **get_decompositions(_FROM_TORCH), **_OURS, **refusal_table()}


def _mean(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Compute sum / n with a sum in f32 at least, since a sum over many f16 values may overflow."""
    result = dtype or x.dtype
    wide = torch.promote_types(result, torch.float32)
    dims = _dims(x, dim)
    total = x.sum(dims, keepdim, dtype=wide if wide != x.dtype else None)
    return (total / _count(x, dims)).to(result)


def _var_mean(
    x: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute a variance from sums of x and of squared distances to its mean (E[x^2] - E[x]^2 cancels)."""
    dims = _dims(x, dim)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = wide.sum(dims, True) / _count(x, dims)
    centered = _magnitude(wide - mean)
    freedom = max(_count(x, dims) - (1 if correction is None else correction), 0)
    squares = centered * centered if freedom else centered
    var = squares.sum(dims, keepdim) / freedom if freedom else squares.sum(dims, keepdim) * math.nan
    return var.to(x.dtype.to_real()), (mean if keepdim else mean.squeeze(dims)).to(x.dtype)


def _std_mean(x: Tensor, *dims: Dims, **options: float) -> tuple[Tensor, Tensor]:
    var, mean = _var_mean(x, *dims, **options)
    return var.sqrt(), mean


def _first(function: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
    """Return a function that gives the first result of ``function``."""
    return lambda *args, **options: function(*args, **options)[0]


def _vector_norm(
    x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    result = (dtype or x.dtype).to_real()
    x = _magnitude(x.to(torch.promote_types(dtype or x.dtype, torch.float32)))
    dims = _dims(x, dim)
    if ord == 2:
        norm = (x * x).sum(dims, keepdim).sqrt()
    elif ord == 0:
        norm = (x != 0).to(x.dtype).sum(dims, keepdim)
    elif ord == 1:
        norm = x.abs().sum(dims, keepdim)
    elif math.isinf(ord):
        norm = x.abs().amax(dims, keepdim) if ord > 0 else x.abs().amin(dims, keepdim)
    else:
        norm = x.abs().pow(ord).sum(dims, keepdim).pow(1.0 / ord)
    return norm.to(result)


def _split(x: Tensor, split_size: int, dim: int = 0) -> list[Tensor]:
    size, starts = x.shape[dim], range(0, max(x.shape[dim], 1), split_size or 1)
    return [aten.slice(x, dim, at, min(at + split_size, size)) for at in starts]


def _split_with_sizes(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    total, ends = x.shape[dim], list(itertools.accumulate(split_sizes))
    pairs = list(zip(split_sizes, ends, strict=True))
    for size, end in pairs:  # the checks tell the trace facts about symbolic sizes
        check(size >= 0)
        check(end <= total)
    check(sum(split_sizes) == total, lambda: f"split sizes {split_sizes} do not add up to {total}")
    return [aten.slice(x, dim, end - size, end) for size, end in pairs]


def _copies(views: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
    """Wrap ``views`` to return copies."""
    return lambda *args, **options: [part.clone() for part in views(*args, **options)]


def _unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    return [aten.select(x, dim, index) for index in range(x.shape[dim])]


def _stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    dim %= tensors[0].dim() + 1
    return torch.cat([tensor.unsqueeze(dim) for tensor in tensors], dim)


def _slice_backward(
    grad: Tensor, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Tensor:
    if step != 1 or any(isinstance(n, torch.SymInt) for n in (start, end, input_sizes[dim])):
        return NotImplemented
    start, end, _ = slice(start, end).indices(input_sizes[dim])
    return _padded(grad, dim % len(input_sizes), start, input_sizes[dim] - max(start, end))


def _select_backward(grad: Tensor, input_sizes: Sequence[int], dim: int, index: int) -> Tensor:
    dim %= len(input_sizes)
    index %= input_sizes[dim]
    return _padded(grad.unsqueeze(dim), dim, index, input_sizes[dim] - index - 1)


def _slice_scatter(
    x: Tensor, source: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    if step != 1:
        return NotImplemented
    start, end, _ = slice(start, end).indices(x.shape[dim])
    return _spliced(x, source, dim, start, max(start, end))


def _select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    index %= x.shape[dim]
    return _spliced(x, source.unsqueeze(dim % x.dim()), dim, index, index + 1)


def _spliced(x: Tensor, source: Tensor, dim: int, start: int, end: int) -> Tensor:
    """Return ``x`` with [start, end) of ``dim`` replaced by ``source``."""
    before, after = aten.slice(x, dim, 0, start), aten.slice(x, dim, end, x.shape[dim])
    parts = [part for part in (before, source.to(x.dtype), after) if part.shape[dim]]
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0].clone()


def _histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Count by a sum of comparisons, so that each shard can count its part."""
    if min == max:
        return NotImplemented  # the bounds depend on the data
    x = x.flatten()
    place = ((x - min) * (bins / (max - min))).floor().clamp(max=bins - 1)
    place = torch.where((x >= min) & (x <= max), place, -1.0)
    return (place.unsqueeze(1) == torch.arange(bins, dtype=place.dtype, device=x.device)).sum(0).to(x.dtype)


def _index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Rewrite ``x[mask] = row``, with one row for all, as a choice for each element, which needs no count."""
    mask = indices[0]
    if len(indices) != 1 or mask is None or mask.dtype != torch.bool:
        return NotImplemented
    while values.dim() > x.dim() - mask.dim() and statically_known_true(values.shape[0] == 1):
        values = values.squeeze(0)
    if values.dim() > x.dim() - mask.dim():
        return NotImplemented
    mask = mask.reshape(*mask.shape, *(1 for _ in range(x.dim() - mask.dim())))
    values = values.to(x.dtype)
    return torch.where(mask, x + values if accumulate else values, x)


def _fill(x: Tensor, value: Tensor) -> Tensor:
    return value.to(x.dtype).expand(x.shape).clone()


def _magnitude(x: Tensor) -> Tensor:
    """Return ``x``, or the magnitudes of complex numbers, for variances and norms to square."""
    return x.abs() if x.is_complex() else x


def _conj(x: Tensor | complex) -> Tensor:
    """Return a conjugate in its own memory; autograd may pass a complex number as a factor."""
    return (
        torch.conj_physical(x) if isinstance(x, Tensor) else complex_tensor(x.conjugate(), torch.complex128)
    )


def _padded(x: Tensor, dim: int, before: int, after: int) -> Tensor:
    if any(isinstance(n, torch.SymInt) for n in (x.numel(), before, after)):  # pads take no symbolic sizes
        zeros = (x.new_zeros([*x.shape[:dim], size, *x.shape[dim + 1 :]]) for size in (before, after))
        return torch.cat([next(zeros), x, next(zeros)], dim)
    if before == after == 0:
        return x.clone()
    return aten.constant_pad_nd(x, [0, 0] * (x.dim() - 1 - dim) + [before, after])


def _addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = torch.bmm(a, b).sum(0)
    return x * beta + product * alpha


def _rsub(x: Tensor, other: Tensor, alpha: float = 1) -> Tensor:
    return torch.sub(other, x, alpha=alpha)


def _squeeze(x: Tensor, dim: Dims = None) -> Tensor:
    """Squeeze as a view, whose sharding rule follows from its shapes."""
    chosen = _dims(x, dim)
    return x.view([n for d, n in enumerate(x.shape) if d not in chosen or n != 1])


def _view(x: Tensor, size: Sequence[int]) -> Tensor:
    """Copy before a view that the strides do not allow.

    Functionalization replays views on the result of an in-place op, which may have other strides.
    """
    if isinstance(x.numel(), torch.SymInt) or x.is_contiguous():
        return NotImplemented
    return NotImplemented if _has_view(x, size) else x.contiguous().view(size)


def _has_view(x: Tensor, size: Sequence[int]) -> bool:
    """Return whether PyTorch allows a view of this size, tested on a tensor without data."""
    with disable_current_modes():
        try:
            torch.empty_strided(x.shape, x.stride(), device="meta").view(size)
        except RuntimeError:
            return False
    return True


def _dims(x: Tensor, dim: Dims) -> list[int]:
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return list(range(x.dim()))
    dims = [dim] if isinstance(dim, int) else dim
    return [d % max(x.dim(), 1) for d in dims] if x.dim() else []


def _count(x: Tensor, dims: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


_OURS: Table = {
    aten._conj.default: _conj,
    aten.addbmm.default: _addbmm,
    aten.fill.Tensor: _fill,
    aten.histc.default: _histc,
    aten.index_put.default: _index_put,
    aten.linalg_vector_norm.default: _vector_norm,
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten.rsub.Tensor: _rsub,
    aten.select_backward.default: _select_backward,
    aten.select_scatter.default: _select_scatter,
    aten.slice_backward.default: _slice_backward,
    aten.slice_scatter.default: _slice_scatter,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
    aten.split_with_sizes_copy.default: _copies(_split_with_sizes),
    aten.squeeze.default: _squeeze,
    aten.squeeze.dim: _squeeze,
    aten.squeeze.dims: _squeeze,
    aten.stack.default: _stack,
    aten.std.correction: _first(_std_mean),
    aten.std_mean.correction: _std_mean,
    aten.unbind.int: _unbind,
    aten.unbind_copy.int: _copies(_unbind),
    aten.unsafe_split.Tensor: _split,
    aten.unsafe_split_with_sizes.default: _split_with_sizes,
    aten.var.correction: _first(_var_mean),
    aten.var_mean.correction: _var_mean,
    aten.view.default: _view,
}
