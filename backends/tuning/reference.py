"""Reference results of a kernel, from its body in f64, and the allowed error of a candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from torch_mlir import ir

from shardc.backends.eager.kern.linalg import run_function
from shardc.backends.eager.proof.tolerance import FLOOR, difference, magnitude, own_precision, relative
from shardc.backends.tuning.inputs import KINDS, make_inputs
from shardc.dialects.kern.generic import GENERIC, GenericLoops
from shardc.dialects.kern.types import read_builtin
from shardc.runtime.errors import IndexOutOfRange


class NoReference(Exception):
    """Raised if the body cannot be evaluated, or has no finite results for any inputs that were tried."""


@dataclass(frozen=True)
class Reference:
    """Results of the body in f64 on ``inputs``, the scale of each, and the allowed relative error."""

    inputs: list[torch.Tensor | int]
    results: list[torch.Tensor]
    scales: list[float]
    relative: float

    def problem(self, results: Sequence[torch.Tensor]) -> str | None:
        """Return text on how ``results`` are wrong; None if they are right."""
        for number, (found, wanted) in enumerate(zip(results, self.results, strict=True)):
            if found.shape != wanted.shape:
                return f"result {number} has the shape {list(found.shape)}, not {list(wanted.shape)}"
            bound = self.relative if wanted.dtype.is_floating_point else 0.0
            gap = float((found.to(wanted.dtype) - wanted).abs().max()) if bound and found.numel() else 0.0
            if not bound or not gap <= bound * self.scales[number]:  # also where there are infinities
                gap = difference(found, wanted)
            if (error := relative(gap, self.scales[number])) > bound:
                return f"result {number} is off by {error:.2g} of its scale, more than {bound:.2g}"
        return None


def make_reference(function: ir.Operation, seed: int = 0) -> Reference:
    """Return the reference on the first kind of inputs that gives no NaN. Raises NoReference."""
    said = "it computes NaNs on all inputs that were tried"
    for kind in KINDS:
        inputs = make_inputs(function, kind, seed)
        try:
            results = run_function(function, [_widened(v) for v in inputs], widen=True)
        except (NotImplementedError, IndexError, IndexOutOfRange) as error:
            said = f"{type(error).__name__}: {error}"
            continue
        if not any(r.isnan().any() for r in results if r.dtype.is_floating_point):
            sizes = [magnitude(r) for r in results]
            scales = [size + FLOOR * max(sizes) for size in sizes]
            return Reference(inputs, results, scales, bound_of(function))
    raise NoReference(said)


def bound_of(function: ir.Operation) -> float:
    """Return the allowed relative error: that of ``check`` for the coarsest dtype, and for its longest sum,
    of ``n`` terms, ``sqrt(n)`` units of the accumulator (Higham and Mary 2019, theorem 2.4).
    """
    dtype = _coarsest(function)
    generics = [o.operation for o in function.regions[0].blocks[0].operations if o.operation.name == GENERIC]
    longest = max((GenericLoops(op).reduced_size() for op in generics), default=1)
    unit = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    return own_precision(dtype).relative + sqrt(longest) * unit


def _widened(value: torch.Tensor | int) -> torch.Tensor:
    tensor = torch.as_tensor(value)
    return tensor.double() if tensor.is_floating_point() else tensor


def _coarsest(function: ir.Operation) -> torch.dtype:
    """Return the coarsest floating dtype among a body's tensors; f64 if it has none."""
    block = function.regions[0].blocks[0]
    values = [*block.arguments, *(r for view in block.operations for r in view.operation.results)]
    types = (t.dtype for v in values if (t := read_builtin(v.type)) is not None)
    floats = (t for t in types if t.is_floating_point)
    return max(floats, key=lambda t: torch.finfo(t).eps, default=torch.float64)
