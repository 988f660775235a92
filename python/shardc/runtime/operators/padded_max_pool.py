"""``shardc::padded_max_pool`` and its backward: maxima of an image padded with a number.

PyTorch pads maxima with the least number, and as much after an image as before it. For other padding it needs
a separate op, whose result has a size that does not divide evenly among devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .define import define
from .padded_convolution import pairs_of

_SETTINGS = "int[] kernel_size, int[] stride, int[] padding, int[] behind, int[] dilation, float value"
SCHEMA = f"(Tensor self, {_SETTINGS}) -> (Tensor, Tensor)"
BACKWARD_SCHEMA = f"(Tensor grad_output, Tensor self, {_SETTINGS}, Tensor indices) -> Tensor"
Sizes = Sequence[int]


def padded_max_pool(
    self: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    behind: Sizes,
    dilation: Sizes,
    value: float,
) -> tuple[Tensor, Tensor]:
    """Take the maximum of each window of padded images.

    Args:
        self: [..., H, W], floating point.
        kernel_size: Pixels of a window in each dim.
        stride: Two numbers, one for each dim of pixels; so are the next three.
        padding: Number of pixels to add before the first.
        behind: Number of pixels to add after the last.
        dilation: Distance of neighbouring pixels in a window.
        value: Number that the added pixels hold.

    Returns:
        Maxima [..., H', W'], and their flat indices in the padded image [padding + H + behind, ...].
    """
    x = torch.ops.aten.constant_pad_nd(self, pairs_of(padding, behind), value)
    return torch.ops.aten.max_pool2d_with_indices(x, kernel_size, stride, [0, 0], dilation)


def padded_max_pool_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    behind: Sizes,
    dilation: Sizes,
    value: float,
    indices: Tensor,
) -> Tensor:
    """Return the gradient of ``self``; gradients of padding are dropped.

    Args:
        grad_output: Gradient of the maxima, [..., H', W'].
        indices: The second result of :func:`padded_max_pool`. Other arguments are those of the first call.
    """
    pairs = pairs_of(padding, behind)
    x = torch.ops.aten.constant_pad_nd(self, pairs, value)
    made = torch.ops.aten.max_pool2d_with_indices_backward(
        grad_output, x, kernel_size, stride, [0, 0], dilation, False, indices
    )
    return torch.ops.aten.constant_pad_nd(made, [-n for n in pairs], 0)


def _fake(
    self: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    behind: Sizes,
    dilation: Sizes,
    value: float,
) -> tuple[Tensor, Tensor]:
    windows = zip(self.shape[-2:], kernel_size, stride, padding, behind, dilation, strict=True)
    sizes = [(x + low + high - hole * (z - 1) - 1) // s + 1 for x, z, s, low, high, hole in windows]
    made = self.new_empty(*self.shape[:-2], *sizes)
    return made, torch.empty_like(made, dtype=torch.int64)


def _fake_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    behind: Sizes,
    dilation: Sizes,
    value: float,
    indices: Tensor,
) -> Tensor:
    return torch.empty_like(self)


define("padded_max_pool", SCHEMA, padded_max_pool, _fake)
define("padded_max_pool_backward", BACKWARD_SCHEMA, padded_max_pool_backward, _fake_backward)
