"""``shardc::circular_pad`` and its backward: padding of images by wrapping around.

PyTorch has no operator for it: ``F.pad`` copies parts of the image into an empty tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .define import define

SCHEMA = "(Tensor self, int[] padding) -> Tensor"
BACKWARD_SCHEMA = "(Tensor grad_output, Tensor self, int[] padding) -> Tensor"


def circular_pad(self: Tensor, padding: Sequence[int]) -> Tensor:
    """Pad each dim at its start with elements of its end, and at its end with elements of its start.

    Args:
        self: [..., H, W].
        padding: Elements before and after each dim, the last dim first; each at most the dim's size.

    Returns:
        [..., before + H + behind, before + W + behind].
    """
    for dim, before, behind in _dims(padding):
        size = self.shape[dim]
        parts = self.narrow(dim, size - before, before), self, self.narrow(dim, 0, behind)
        self = torch.cat(parts, dim)
    return self.clone() if not any(padding) else self


def circular_pad_backward(grad_output: Tensor, self: Tensor, padding: Sequence[int]) -> Tensor:
    """Add to each element the gradients of its copies.

    Args:
        grad_output: Shaped as what :func:`circular_pad` returns.
        self: As for :func:`circular_pad`.
        padding: As for :func:`circular_pad`.
    """
    for dim, before, behind in _dims(padding):
        size = self.shape[dim]
        grad = grad_output.narrow(dim, before, size).clone()
        grad.narrow(dim, size - before, before).add_(grad_output.narrow(dim, 0, before))
        grad.narrow(dim, 0, behind).add_(grad_output.narrow(dim, before + size, behind))
        grad_output = grad
    return grad_output.clone() if not any(padding) else grad_output


def _dims(padding: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (dim, before, behind) for each padded dim."""
    for place in range(0, len(padding), 2):
        if padding[place] or padding[place + 1]:
            yield -1 - place // 2, padding[place], padding[place + 1]


def _fake(self: Tensor, padding: Sequence[int]) -> Tensor:
    shape = list(self.shape)
    for dim, before, behind in _dims(padding):
        shape[dim] += before + behind
    return self.new_empty(shape)


def _fake_backward(grad_output: Tensor, self: Tensor, padding: Sequence[int]) -> Tensor:
    return torch.empty_like(self)


def _setup_context(ctx: Any, inputs: tuple[Tensor, Sequence[int]], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.padding = inputs[1]


def _autograd(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (image,) = ctx.saved_tensors
    return torch.ops.shardc.circular_pad_backward(grad, image, ctx.padding), None


define("circular_pad_backward", BACKWARD_SCHEMA, circular_pad_backward, _fake_backward)
if define("circular_pad", SCHEMA, circular_pad, _fake):
    torch.library.register_autograd("shardc::circular_pad", _autograd, setup_context=_setup_context)
