"""Scans of 33 to 1,024 steps of many elements each: scans of blocks, and of what the blocks make.

A kernel computes each step of a short scan from all of its steps, with elements as lanes of vectors. A block
has as few steps as leave at most 32 blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

import torch
from torch import Tensor

from shardc.frontend.operators import Table

aten = torch.ops.aten
MOST_STEPS = 32
"""Most steps of a scan that a kernel computes."""
LEAST_INNER = 16
"""Least number of elements of a step that are adjacent. Blocks along the last dim, whose steps would be the
lanes, took up to 3.8 times as long as a library."""
_DTYPES = (torch.float32, torch.float64)


def long_scan_table() -> Table:
    """Return the decompositions of cumulated sums, products and extrema."""
    return {
        aten.cumsum.default: _combined(aten.cumsum.default, torch.sum, torch.add, 0.0),
        aten.cumprod.default: _combined(aten.cumprod.default, torch.prod, torch.mul, 1.0),
        aten.cummax.default: _extrema(aten.cummax.default, -inf, torch.ge),
        aten.cummin.default: _extrema(aten.cummin.default, inf, torch.le),
    }


def _combined(
    scan: Callable[..., Tensor],
    reduce: Callable[[Tensor, int], Tensor],
    combine: Callable[[Tensor, Tensor], Tensor],
    neutral: float,
) -> Callable[..., Tensor]:
    """Return the decomposition of a scan whose result is that of the blocks before, and of the own block."""

    def decomposed(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
        dim = dim % x.dim() if x.dim() else 0
        if not _is_long(x, dim) or dtype not in (None, x.dtype):
            return NotImplemented
        y = _blocks(x, dim, neutral)
        before = _behind(scan(reduce(y, dim + 1), dim), dim, neutral)
        return _joined(combine(scan(y, dim + 1), before.unsqueeze(dim + 1)), dim, x.shape[dim])

    return decomposed


def _extrema(
    scan: Callable[..., tuple[Tensor, Tensor]], neutral: float, better: Callable[[Tensor, Tensor], Tensor]
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the decomposition of a scan for extrema and their last indices; a NaN is the extremum."""

    def decomposed(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        dim = dim % x.dim() if x.dim() else 0
        if not _is_long(x, dim):
            return NotImplemented
        y = _blocks(x, dim, neutral)
        steps = y.shape[dim + 1]
        found, at = scan(y, dim + 1)
        first = torch.arange(y.shape[dim], device=x.device).view(-1, *[1] * (x.dim() - dim))
        at = at + first * steps
        best, block = scan(found.select(dim + 1, steps - 1), dim)
        place = at.select(dim + 1, steps - 1).gather(dim, block)
        best, place = (_behind(*each).unsqueeze(dim + 1) for each in ((best, dim, neutral), (place, dim, 0)))
        here = better(found, best) | found.isnan()
        pairs = (torch.where(here, found, best), torch.where(here, at, place))
        value, index = (_joined(each, dim, x.shape[dim]) for each in pairs)
        return value, index

    return decomposed


def _is_long(x: Tensor, dim: int) -> bool:
    if not all(isinstance(n, int) for n in x.shape) or x.dtype not in _DTYPES:
        return False
    if not x.dim() or 0 in x.shape:
        return False
    inner = prod(x.shape[dim + 1 :])
    return MOST_STEPS < x.shape[dim] <= MOST_STEPS**2 and inner >= LEAST_INNER


def _blocks(x: Tensor, dim: int, neutral: float) -> Tensor:
    """Return ``x`` with dim ``dim`` as blocks of steps, after steps that change nothing."""
    size = x.shape[dim]
    shortest = -(-size // MOST_STEPS)
    steps = next((n for n in range(shortest, 2 * shortest) if not size % n), shortest)
    missing = -size % steps
    if missing:
        x = aten.constant_pad_nd.default(x, [0, 0] * (x.dim() - dim - 1) + [0, missing], neutral)
    return x.unflatten(dim, (-1, steps))


def _behind(x: Tensor, dim: int, first: float) -> Tensor:
    """Return the blocks before each one: ``first``, and all but the last of ``x``."""
    around = [0, 0] * (x.dim() - dim - 1) + [1, 0]
    return aten.constant_pad_nd.default(x.narrow(dim, 0, x.shape[dim] - 1), around, first)


def _joined(x: Tensor, dim: int, size: int) -> Tensor:
    """Return blocks of steps as one dim of ``size`` steps."""
    x = x.flatten(dim, dim + 1)
    return x if x.shape[dim] == size else x.narrow(dim, 0, size)
