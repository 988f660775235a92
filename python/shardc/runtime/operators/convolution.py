"""``shardc::convolution_last`` and its backward: convolutions of images whose channels are the last dim.

oneDNN is often faster on such images. PyTorch expresses the layout by strides, which programs do not have.
``shardc::convolution_direct`` is ``aten::convolution``, where a kernel of shardc's own is faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .define import define

_SETTINGS = "int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups"
SCHEMA = f"(Tensor input, Tensor weight, Tensor? bias, {_SETTINGS}) -> Tensor"
BACKWARD_SCHEMA = (
    f"(Tensor grad_output, Tensor input, Tensor weight, int[]? bias_sizes, {_SETTINGS}, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)"
)
Sizes = Sequence[int]
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def convolution_last(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Tensor:
    """Convolve images with ``aten.convolution``.

    Args:
        input: [N, pixels..., C], with any strides.
        weight: As for ``aten.convolution``; so are the other arguments.
        bias: [C'], or None.
        stride: One number for each dim of pixels; so are ``padding``, ``dilation`` and ``output_padding``.
        padding: Number of pixels to add at both ends.
        dilation: Distance of neighbouring pixels in a window.
        transposed: Compute a transposed convolution.
        output_padding: Number of pixels to add to a transposed convolution's result.
        groups: As in :func:`torch.nn.functional.conv2d`.

    Returns:
        [N, pixels..., C'], contiguous.
    """
    x = input.contiguous().movedim(-1, 1)
    settings = (stride, padding, dilation, transposed, output_padding, groups)
    return torch.ops.aten.convolution(x, weight, bias, *settings).movedim(1, -1).contiguous()


def convolution_last_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    output_mask: Sequence[bool],
) -> Gradients:
    """Return the gradients of input, weight and bias that ``output_mask`` asks for, None for others.

    Args:
        grad_output: [N, pixels..., C'], with any strides.
        input: As for :func:`convolution_last`.
        weight: As for :func:`convolution_last`.
        bias_sizes: Sizes of the bias, or None.
        stride: As for :func:`convolution_last`; so are the other numbers.
        padding: As above.
        dilation: As above.
        transposed: As above.
        output_padding: As above.
        groups: As above.
        output_mask: For each of the three gradients, True if it is needed.
    """
    grad, x = grad_output.contiguous().movedim(-1, 1), input.contiguous().movedim(-1, 1)
    settings = (stride, padding, dilation, transposed, output_padding, groups, output_mask)
    made = torch.ops.aten.convolution_backward(grad, x, weight, bias_sizes, *settings)
    of_input, of_weight, of_bias = made
    if output_mask[0]:
        of_input = of_input.movedim(1, -1).contiguous()
    return of_input, of_weight.contiguous() if output_mask[1] else None, of_bias


def convolution_direct(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Tensor:
    """Return what ``aten.convolution`` does, contiguous. It is called where the kernel does not compile."""
    settings = (stride, padding, dilation, transposed, output_padding, groups)
    return torch.ops.aten.convolution(input, weight, bias, *settings).contiguous()


def _fake(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Tensor:
    settings = (stride, padding, dilation, transposed, output_padding, groups)
    made = torch.ops.aten.convolution(input.movedim(-1, 1), weight, bias, *settings)
    return made.movedim(1, -1).contiguous()


def _fake_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    output_mask: Sequence[bool],
) -> Gradients:
    grads = (
        input.new_empty(input.shape),
        weight.new_empty(weight.shape),
        grad_output.new_empty(grad_output.shape[-1:]),
    )
    asked = [grad if mask else None for grad, mask in zip(grads, output_mask, strict=True)]
    return asked[0], asked[1], asked[2]


define("convolution_direct", SCHEMA, convolution_direct, convolution_direct)
define("convolution_last", SCHEMA, convolution_last, _fake)
define("convolution_last_backward", BACKWARD_SCHEMA, convolution_last_backward, _fake_backward)
