"""Tolerances for two programs that are equal in exact arithmetic.

The error of a tensor ``a`` against the reference ``b`` is ``max|a - b| / scale``, with
``scale = max|b| + 1e-3 * (the largest max|b| of its kind)``. Kinds are the loss, the gradients, the
parameters, the buffers, and each sort of optimizer state (``exp_avg``, ...). The second term is needed
because some gradients, such as that of an attention's key bias, are zero in exact arithmetic and only
rounding error in floats. If a gradient cancels and that is not enough, ``scale`` also has the magnitude of
its summed terms (:mod:`shardc.backends.eager.proof.summed`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.dialects.aten.types import read_type

FLOOR = 1e-3
ROUGH, ROUGHEST = 8.0, 0.1
"""Errors that are allowed for a program whose rounding is magnified, as by a batch norm over a few values:
so many times the error of the global program in its own precision, and no more than that.

A rank program of LeViT was 4.3 times as far from eager training in f32 as that was from f64."""
UPDATE = 0.1
"""Bound of :func:`update_error`: the mean error of a parameter's update, relative to the mean update."""
_TINY = 1e-300


@dataclass(frozen=True)
class Tolerance:
    """Bounds on errors: ``relative``, multiplied by ``square`` for optimizer state, which holds squares.

    Parameters may differ by another ``drift`` learning rates for each step since they were equal. For Adam
    divides a gradient by its own magnitude: if the gradient is rounding error, so is the direction of the
    update. Integers and booleans must be equal.
    """

    relative: float
    drift: float = 0.0
    square: float = 1.0

    @property
    def cancels(self) -> float:
        """Largest size, relative to its summed terms, of a gradient that counts as cancelled.

        It is 1e-3, or four roundings of the coarsest dtype if that is more.
        """
        return max(FLOOR, self.relative / 4)

    def bound(self, role: str, dtype: torch.dtype, scale: float, moved: float) -> float:
        """Return the largest allowed error. ``moved``: learning rate times steps since states were equal."""
        if not dtype.is_floating_point and not dtype.is_complex:
            return 0.0
        if role == "param":
            return self.relative + self.drift * moved / max(scale, _TINY)
        return self.relative * (self.square if role == "opt_state" else 1)


def in_f64() -> Tolerance:
    """Return bounds for runs in f64: 1e-9. Observed errors are below 3e-12 (three steps of eight models)."""
    return Tolerance(1e-9)


def own_precision(dtype: torch.dtype) -> Tolerance:
    """Return bounds for a coarsest floating dtype ``dtype``: ``16 eps(dtype) + 256 eps(accumulator)``.

    Sums of thousands of terms are computed in another order, with an f32 accumulator (f64 for f64). Results
    are rounded to ``dtype`` after each op.
    """
    accumulator = torch.promote_types(dtype, torch.float32)
    return Tolerance(16 * torch.finfo(dtype).eps + 256 * torch.finfo(accumulator).eps, drift=2.0, square=2.0)


def for_rounding(tolerance: Tolerance, error: float) -> Tolerance:
    """Return bounds for a program whose own rounding changes its results by ``error``."""
    return replace(tolerance, relative=max(tolerance.relative, min(ROUGH * error, ROUGHEST)))


def coarsest_dtype(step: ir.Operation) -> torch.dtype:
    """Return the coarsest floating dtype among a step's values; f64 if it has none."""
    block = step.regions[0].blocks[0]
    values = [*block.arguments, *(r for op in block.operations for r in op.operation.results)]
    types = {t for v in values if (t := read_type(v.type)) is not None}
    floating = {t.dtype for t in types if t.dtype.is_floating_point}
    return max(floating, key=lambda d: torch.finfo(d).eps, default=torch.float64)


def magnitude(tensor: Tensor) -> float:
    """Return the largest finite absolute value; 0 for an empty tensor."""
    finite = wide(tensor).abs().nan_to_num(nan=0.0, posinf=0.0)
    return float(finite.max()) if finite.numel() else 0.0


def difference(a: Tensor, b: Tensor) -> float:
    """Return ``max|a - b|``. It is infinite for different shapes, an infinity in only one, or any NaN.

    Two NaNs are not equal: programs that both fail to compute a loss prove nothing.
    """
    if a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    a, b = wide(a), wide(b)
    gap = torch.where(a == b, 0.0, (a - b).abs())
    return float(gap.nan_to_num(nan=float("inf"), posinf=float("inf")).max())


def update_error(made: Tensor, wanted: Tensor, before: Tensor) -> float:
    """Return the mean of ``|made - wanted|`` relative to that of ``|wanted - before|``, plus four roundings.

    An element of Adam's update may have the wrong sign if its gradient is rounding error, so
    :meth:`Tolerance.bound` allows that for each element. But most elements of a right update are close.
    """
    if made.shape != wanted.shape or not wanted.numel() or not wanted.dtype.is_floating_point:
        return 0.0
    moved = float((wide(wanted) - wide(before)).abs().mean())
    rounding = 4 * torch.finfo(wanted.dtype).eps * magnitude(wanted)
    return relative(float((wide(made) - wide(wanted)).abs().mean()), moved + rounding / UPDATE)


def relative(gap: float, scale: float) -> float:
    return gap / max(scale, _TINY)


def wide(tensor: Tensor) -> Tensor:
    """Convert a tensor to the widest dtype of its kind, so that differences are computed accurately."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
