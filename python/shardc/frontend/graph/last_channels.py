"""Group norms of tensors with channels last: statistics of each channel, then of the groups' channels.

The channels of a group are a short run of memory that repeats at each pixel. Sums over the pixels alone are
sums of whole rows of channels, and the groups are summed in a tensor of one number for each channel.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from shardc.frontend.operators import Table

aten = torch.ops.aten
MOST_CHANNELS = 16
"""Most channels of a group: one vector of f32. In groups of 32, gradients took 1.4 times as long in this form
as with a kernel's rows of one group."""
_DTYPES = (torch.float32, torch.float64)


def last_channels_table() -> Table:
    """Return the decompositions of group norm and its gradients."""
    return {
        aten.native_group_norm.default: _group_norm,
        aten.native_group_norm_backward.default: _group_norm_backward,
    }


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, pixels: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    if not _is_covered(x, group):
        return NotImplemented
    dims = list(range(2, x.dim()))
    mean = _of_groups(x.mean(dims), group).mean(2)
    off = x - _seen(_of_channels(mean, c), x)
    variance = _of_groups(off.square().mean(dims), group).mean(2)
    rstd = torch.rsqrt(variance + eps)
    scale = _of_channels(rstd, c)
    out = off * _seen(scale if weight is None else scale * weight, x)
    return out if bias is None else out + _seen(bias, x), mean, rstd


def _group_norm_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    n: int,
    c: int,
    pixels: int,
    group: int,
    mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    if not _is_covered(x, group) or grad.dtype != x.dtype:
        return NotImplemented
    dims, count = list(range(2, x.dim())), c // group * prod(x.shape[2:])
    scale = _of_channels(rstd, c)
    normed = (x - _seen(_of_channels(mean, c), x)) * _seen(scale, x)
    with_normed, alone = (grad * normed).sum(dims), grad.sum(dims)
    dx = None
    if mask[0]:
        own = scale if weight is None else scale * weight
        along, across = (
            _of_channels(_of_groups(total * own, group).sum(2) / count, c) for total in (with_normed, alone)
        )
        dx = grad * _seen(own, x) - _seen(across, x) - normed * _seen(along, x)
    return dx, with_normed.sum(0) if mask[1] else None, alone.sum(0) if mask[2] else None


def _is_covered(x: Tensor, group: int) -> bool:
    """Return whether the channels of ``x`` are last in memory, in groups of a few."""
    if x.dim() not in (4, 5) or x.dtype not in _DTYPES or not all(isinstance(s, int) for s in x.shape):
        return False
    form = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    is_last = x.is_contiguous(memory_format=form) and not x.is_contiguous()
    return is_last and 0 not in x.shape and 1 < x.shape[1] // group <= MOST_CHANNELS


def _of_groups(x: Tensor, group: int) -> Tensor:
    """Return a tensor of one number for each sample and channel as [samples, groups, channels of one]."""
    return x.view(x.shape[0], group, -1)


def _of_channels(x: Tensor, channels: int) -> Tensor:
    """Return a tensor of one number for each sample and group as one for each sample and channel.

    It is a sum over the groups: of a view, kernels would make loops over groups and over their few channels.
    """
    groups = x.shape[1]
    group = torch.arange(channels, device=x.device) // (channels // groups)
    is_own = group == torch.arange(groups, device=x.device)[:, None]
    return torch.where(is_own, x[:, :, None], 0.0).sum(1)


def _seen(x: Tensor, like: Tensor) -> Tensor:
    """Return ``x``, whose last dim are the channels, with dims of size 1 for the pixels."""
    return x.reshape(*x.shape, *[1] * (like.dim() - 2))
