"""``shardc::padded_convolution`` and its backward: with different padding at both ends, or circular padding.

PyTorch needs a separate padding op for these. Its result has a size that does not divide evenly among
devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .circular_pad import circular_pad, circular_pad_backward
from .define import define

_SETTINGS = "int[] stride, int[] padding, int[] behind, int[] dilation, int groups, bool ring"
SCHEMA = f"(Tensor input, Tensor weight, Tensor? bias, {_SETTINGS}) -> Tensor"
BACKWARD_SCHEMA = (
    f"(Tensor grad_output, Tensor input, Tensor weight, {_SETTINGS}, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)"
)
Sizes = Sequence[int]
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def padded_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    behind: Sizes,
    dilation: Sizes,
    groups: int,
    ring: bool,
) -> Tensor:
    """Convolve padded images.

    Args:
        input: [N, C, pixels...].
        weight: [C', C / groups, window...].
        bias: [C'], or None.
        stride: One number for each dim of pixels; so are ``padding``, ``behind`` and ``dilation``.
        padding: Number of pixels to add before the first.
        behind: Number of pixels to add after the last.
        dilation: Distance of neighbouring pixels in a window.
        groups: As in :func:`torch.nn.functional.conv2d`.
        ring: Pad circularly, with pixels from the other end; otherwise with zeros.

    Returns:
        [N, C', pixels...].
    """
    x, none = _padded(input, padding, behind, ring), [0] * len(stride)
    return torch.ops.aten.convolution(x, weight, bias, stride, none, dilation, False, none, groups)


def padded_convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Sizes,
    padding: Sizes,
    behind: Sizes,
    dilation: Sizes,
    groups: int,
    ring: bool,
    output_mask: Sequence[bool],
) -> Gradients:
    """Return the gradients of input, weight and bias that ``output_mask`` asks for, None for others.

    Arguments are those of :func:`padded_convolution`.
    """
    x, none, pairs = _padded(input, padding, behind, ring), [0] * len(stride), pairs_of(padding, behind)
    settings = (stride, none, dilation, False, none, groups, output_mask)
    made = torch.ops.aten.convolution_backward(grad_output, x, weight, [weight.shape[0]], *settings)
    if not output_mask[0]:
        return made
    cut = circular_pad_backward(made[0], input, pairs) if ring else _cut(made[0], pairs)
    return cut, made[1], made[2]


def pairs_of(padding: Sizes, behind: Sizes) -> list[int]:
    """Return padding in the order of ``F.pad``: the last dim first, before and after."""
    return [n for pair in reversed(list(zip(padding, behind, strict=True))) for n in pair]


def _padded(input: Tensor, padding: Sizes, behind: Sizes, ring: bool) -> Tensor:
    pairs = pairs_of(padding, behind)
    return circular_pad(input, pairs) if ring else torch.ops.aten.constant_pad_nd(input, pairs, 0)


def _cut(grad: Tensor, pairs: Sizes) -> Tensor:
    return torch.ops.aten.constant_pad_nd(grad, [-n for n in pairs], 0)


def _fake(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    behind: Sizes,
    dilation: Sizes,
    groups: int,
    ring: bool,
) -> Tensor:
    windows = zip(input.shape[2:], weight.shape[2:], stride, padding, behind, dilation, strict=True)
    sizes = [(x + low + high - hole * (z - 1) - 1) // s + 1 for x, z, s, low, high, hole in windows]
    return input.new_empty(input.shape[0], weight.shape[0], *sizes)


def _fake_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: Sizes,
    padding: Sizes,
    behind: Sizes,
    dilation: Sizes,
    groups: int,
    ring: bool,
    output_mask: Sequence[bool],
) -> Gradients:
    made = torch.empty_like(input), torch.empty_like(weight), grad_output.new_empty(weight.shape[0])
    grads = [grad if asked else None for grad, asked in zip(made, output_mask, strict=True)]
    return grads[0], grads[1], grads[2]


define("padded_convolution", SCHEMA, padded_convolution, _fake)
define("padded_convolution_backward", BACKWARD_SCHEMA, padded_convolution_backward, _fake_backward)
