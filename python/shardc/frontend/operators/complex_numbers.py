"""Complex scalars in calls, for which the IR has no constants, as 0-d tensors.

Autograd creates them: gradients of ``abs``, ``polar`` or a complex convolution multiply by ``1j``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from shardc.frontend.operators import Table
from shardc.runtime.torch_private import OpOverload

aten = torch.ops.aten
_BINARY = (aten.add, aten.sub, aten.mul, aten.div)
_PRODUCTS: dict[OpOverload, Callable[..., Tensor]] = {
    aten.addmm.default: aten.mm.default,
    aten.addmv.default: aten.mv.default,
    aten.addr.default: lambda x, y: aten.mul.Tensor(x.unsqueeze(1), y),
    aten.baddbmm.default: aten.bmm.default,
    aten.addbmm.default: lambda x, y: aten.bmm.default(x, y).sum(0),
}
"""The product in each op that computes ``beta * x + alpha * product``."""


def complex_table() -> Table:
    """Return decompositions of calls with a complex scalar; calls without one stay unchanged."""
    ours: Table = {
        aten.full.default: _full,
        aten.full_like.default: _full_like,
        aten.new_full.default: _new_full,
        aten.constant_pad_nd.default: _pad,
        aten.index_fill.int_Scalar: _index_fill,
        aten._unsafe_masked_index.default: _masked_index,
        aten.rsub.Scalar: partial(_binary, _reversed_sub),
    }
    pairs = [(op, packet.Tensor) for packet in _BINARY for op in (packet.Tensor, packet.Scalar)]
    binary: Table = {op: partial(_binary, of_tensors) for op, of_tensors in pairs}
    return ours | binary | {op: partial(_scaled_sum, product) for op, product in _PRODUCTS.items()}


def _binary(op: Callable[..., Tensor], x: Tensor, other: object, *more: object, **options: object) -> object:
    if not isinstance(other, complex):
        return NotImplemented
    return op(x, complex_tensor(other, torch.result_type(x, other), x.device), *more, **options)


def _reversed_sub(x: Tensor, other: Tensor, alpha: object = 1) -> Tensor:
    return aten.sub.Tensor(other, x, alpha=alpha)


def _full(
    size: Sequence[int],
    value: object,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    **more: object,
) -> object:
    dtype = dtype or torch.get_default_dtype().to_complex()
    if not isinstance(value, complex) or not dtype.is_complex:
        return NotImplemented
    return complex_tensor(value, dtype, device).expand(size).clone()


def _full_like(x: Tensor, value: object, **options: object) -> object:
    if not isinstance(value, complex):
        return NotImplemented
    made = aten.empty_like.default(x, **options)
    if not made.dtype.is_complex:
        return NotImplemented
    return aten.copy.default(made, complex_tensor(value, made.dtype, made.device))


def _new_full(
    x: Tensor, size: Sequence[int], value: object, dtype: Any = None, device: Any = None, **more: object
) -> object:
    return _full(size, value, dtype or x.dtype, device or x.device)


def _pad(x: Tensor, pad: Sequence[int], value: object = 0) -> object:
    if not isinstance(value, complex) or not x.is_complex():
        return NotImplemented
    inside = aten.constant_pad_nd.default(torch.ones_like(x, dtype=torch.bool), pad)
    return aten.where.self(
        inside, aten.constant_pad_nd.default(x, pad), complex_tensor(value, x.dtype, x.device)
    )


def _index_fill(x: Tensor, dim: int, index: Tensor, value: object) -> object:
    if not isinstance(value, complex) or not x.is_complex():
        return NotImplemented
    return aten.index_fill.int_Tensor(x, dim, index, complex_tensor(value, x.dtype, x.device))


def _masked_index(x: Tensor, mask: Tensor, indices: Sequence[object], fill: object) -> object:
    if not isinstance(fill, complex) or not x.is_complex():
        return NotImplemented
    found = aten._unsafe_masked_index.default(x, mask, indices, 0)
    return aten.where.self(mask, found, complex_tensor(fill, x.dtype, x.device))


def _scaled_sum(
    product: Callable[..., Tensor], x: Tensor, *factors: Tensor, beta: complex = 1, alpha: complex = 1
) -> object:
    """Compute ``beta * x + alpha * product``; ``x`` is not read if ``beta`` is 0."""
    if not isinstance(beta, complex) and not isinstance(alpha, complex):
        return NotImplemented
    made = aten.mul.Tensor(product(*factors), alpha)
    return made if beta == 0 else aten.add.Tensor(made, aten.mul.Tensor(x, beta))


def complex_tensor(value: complex, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
    """Return a 0-d tensor with this value, made from its two parts."""
    parts = (value.real, value.imag)
    return torch.complex(*(torch.full((), part, dtype=dtype.to_real(), device=device) for part in parts))
