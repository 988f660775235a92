"""Traces circular ``F.pad`` of images as one op, ``shardc::circular_pad``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import shardc.runtime.operators.circular_pad  # noqa: F401  (registers shardc::circular_pad)


def circular_pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor | None:
    """Replace ``F.pad``; None, which leaves it to torch, for other modes, cropping and invalid pads."""
    if mode != "circular" or len(pad) % 2 or len(pad) != 2 * (input.dim() - 2):
        return None
    sizes = [size for size in reversed(input.shape[2:]) for _ in range(2)]
    if not all(isinstance(size, int) and 0 <= n <= size for n, size in zip(pad, sizes, strict=True)):
        return None
    return torch.ops.shardc.circular_pad(input, list(pad))
