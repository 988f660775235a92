"""``shardc::causal_convolution`` and its backward: convolutions whose windows end at their own element.

PyTorch has no such operator. Models pad a convolution on both sides, and drop elements at the end of its
result. The result is then longer than the input, so that their blocks on devices do not correspond.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .define import define

SCHEMA = "(Tensor input, Tensor weight, Tensor? bias, int dilation, int groups) -> Tensor"
BACKWARD_SCHEMA = (
    "(Tensor grad_output, Tensor input, Tensor weight, int dilation, int groups, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)"
)
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def causal_convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, dilation: int, groups: int
) -> Tensor:
    """Convolve each sequence, with windows that see only the present and earlier elements.

    Args:
        input: [N, C, S].
        weight: [C', C / groups, K]; its last column is for the present element.
        bias: [C'], or None.
        dilation: Distance of neighbouring elements in a window.
        groups: As in :func:`torch.nn.functional.conv1d`.

    Returns:
        [N, C', S].
    """
    reach = dilation * (weight.shape[2] - 1)
    made = torch.nn.functional.conv1d(input, weight, bias, 1, reach, dilation, groups)
    return made[:, :, : input.shape[2]]


def causal_convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    dilation: int,
    groups: int,
    output_mask: Sequence[bool],
) -> Gradients:
    """Return the gradients of input, weight and bias that ``output_mask`` asks for, None for others.

    Args:
        grad_output: [N, C', S].
        input: As for :func:`causal_convolution`.
        weight: As for :func:`causal_convolution`.
        dilation: As for :func:`causal_convolution`.
        groups: As for :func:`causal_convolution`.
        output_mask: For each of the three gradients, True if it is needed.
    """
    reach = dilation * (weight.shape[2] - 1)
    grad = torch.nn.functional.pad(grad_output, (0, reach))
    sizes = [weight.shape[0]]
    return torch.ops.aten.convolution_backward(
        grad, input, weight, sizes, [1], [reach], [dilation], False, [0], groups, output_mask
    )


def _fake(input: Tensor, weight: Tensor, bias: Tensor | None, dilation: int, groups: int) -> Tensor:
    return input.new_empty(input.shape[0], weight.shape[0], input.shape[2])


def _fake_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    dilation: int,
    groups: int,
    output_mask: Sequence[bool],
) -> Gradients:
    made = torch.empty_like(input), torch.empty_like(weight), grad_output.new_empty(weight.shape[0])
    grads = [grad if asked else None for grad, asked in zip(made, output_mask, strict=True)]
    return grads[0], grads[1], grads[2]


define("causal_convolution", SCHEMA, causal_convolution, _fake)
define("causal_convolution_backward", BACKWARD_SCHEMA, causal_convolution_backward, _fake_backward)
