"""Linear algebra that raises for singular matrices, traced without a check for them.

PyTorch's functions read a flag of each matrix and raise. A step has no errors that depend on values; its
results are NaN for such matrices.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _cholesky(input: Tensor, *, upper: bool = False) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(input, upper=upper)
    return _or_nan(factor, info)


def _inv(input: Tensor) -> Tensor:
    inverse, info = torch.linalg.inv_ex(input)
    return _or_nan(inverse, info)


def _solve(input: Tensor, other: Tensor, *, left: bool = True) -> Tensor:
    """Solve for a vector or a matrix per matrix of ``input``, as ``torch.linalg.solve`` does."""
    result, info = torch.linalg.solve_ex(input, other, left=left)
    lacking = result.dim() - info.dim()
    return torch.where((info == 0).view(*info.shape, *(1 for _ in range(lacking))), result, torch.nan)


def _or_nan(result: Tensor, info: Tensor) -> Tensor:
    return torch.where((info == 0)[..., None, None], result, torch.nan)


UNCHECKED: dict[Callable[..., object], Callable[..., Tensor]] = {
    torch.linalg.cholesky: _cholesky,
    torch.linalg.inv: _inv,
    torch.inverse: _inv,
    torch.Tensor.inverse: _inv,
    torch.linalg.solve: _solve,
}
"""Functions of PyTorch, with the functions that are traced instead."""
