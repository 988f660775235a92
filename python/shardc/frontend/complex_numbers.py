"""Complex numbers among a call's arguments, which the IR has no constants for, as tensors of no dims.

Autograd writes them: the gradient of ``abs``, ``polar`` or a complex convolution multiplies by ``1j``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

aten = torch.ops.aten


_BINARY = {
    op: packet.Tensor
    for packet in (aten.add, aten.sub, aten.mul, aten.div)
    for op in (packet.Tensor, packet.Scalar)
}


def complex_table() -> dict[torch._ops.OpOverload, Callable[..., Any]]:
    """Decompositions of calls with such a number; calls without one stay as they are."""
    return {aten.full.default: _full, aten.rsub.Scalar: _rsub} | {
        op: partial(_binary, of_tensors) for op, of_tensors in _BINARY.items()
    }


def _binary(op: torch._ops.OpOverload, x: torch.Tensor, other: Any, *more: Any, **options: Any) -> Any:
    if not isinstance(other, complex):
        return NotImplemented
    return op(x, _tensor(other, torch.result_type(x, other), x.device), *more, **options)


def _rsub(x: torch.Tensor, other: Any, alpha: Any = 1) -> Any:
    if not isinstance(other, complex):
        return NotImplemented
    return aten.sub.Tensor(_tensor(other, torch.result_type(x, other), x.device), x, alpha=alpha)


def _full(size: Sequence[Any], value: Any, dtype: torch.dtype | None = None, device: Any = None, **more: Any) -> Any:
    if not isinstance(value, complex):
        return NotImplemented
    dtype = dtype or torch.get_default_dtype().to_complex()
    return _tensor(value, dtype, device).expand(size).clone() if dtype.is_complex else NotImplemented


def _tensor(value: complex, dtype: torch.dtype, device: Any) -> torch.Tensor:
    real = dtype.to_real()
    return torch.complex(*(torch.full((), part, dtype=real, device=device) for part in (value.real, value.imag)))
