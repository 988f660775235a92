"""Library operators in terms of ATen, since libraries lack f64, in which the oracle runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "none": lambda x, _: x,
    "gelu": lambda x, algorithm: functional.gelu(x, approximate=algorithm or "none"),
    "sigmoid": lambda x, _: torch.sigmoid(x),
    "swish": lambda x, _: functional.silu(x),
    "tanh": lambda x, _: torch.tanh(x),
}
"""oneDNN's post-ops by PyTorch's names for them."""


def _linear_pointwise(
    x: Tensor, weight: Tensor, bias: Tensor | None, attr: str, scalars: Sequence[Any], algorithm: str | None
) -> Tensor:
    return _ACTIVATIONS[attr](functional.linear(x, weight, bias), algorithm)


def _linear_pointwise_binary(
    x: Tensor, other: Tensor, weight: Tensor, bias: Tensor | None, attr: str
) -> Tensor:
    if attr != "add":
        raise NotImplementedError(f"the oracle does not know what oneDNN's linear does with {attr!r}")
    return functional.linear(x, weight, bias) + other


MEANINGS: dict[str, Callable[..., Tensor]] = {
    "mkldnn._linear_pointwise": _linear_pointwise,
    "mkldnn._linear_pointwise.binary": _linear_pointwise_binary,
}
"""Operator name -> function with the operator's own parameters, in order."""
