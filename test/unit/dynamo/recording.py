"""Libraries of kernels whose calls are compared with what the kernel's body gives in f64, on the very same
tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch_mlir import ir

from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.eager.kern.linalg import run_kernel
from shardc.backends.eager.proof.tolerance import difference, magnitude

BOUNDS = {torch.bfloat16: 2.0**-7, torch.float32: 1e-5, torch.float64: 1e-13}
"""Of a result's largest error, relative to its largest element, by the coarsest dtype that a kernel reads or
makes. Seen: 2**-7.8, 6e-6 and 7e-14. bf16 kernels compute in f32, and round what they make once, and again
where they read it; AdamW's ``1 - beta ** step`` loses three digits in f32.
"""
FLOOR = 0.05
"""A result that is smaller than this part of the largest number that a kernel read or made counts as so
large: a mean, say, which cancels out.
"""

Inputs = tuple[torch.Tensor, ...]
Check = Callable[[str, Inputs, Inputs], None]


class Recording:
    """A library whose kernels hand their name, inputs and results to ``check``."""

    def __init__(self, library: Any, check: Check) -> None:
        self.path, self._library, self._check = library.path, library, check

    def kernel(self, name: str, *args: Any, **options: Any) -> Callable[..., Inputs]:
        call = self._library.kernel(name, *args, **options)

        def checked(*given: Any) -> Inputs:
            before = _copies(given)
            made = call(*given)
            self._check(name, before, made)
            return made

        return checked

    def batch(self, name: str, *args: Any) -> Callable[..., list[Inputs]]:
        call = self._library.batch(name, *args)

        def checked(*given: Inputs) -> list[Inputs]:
            before = list(map(_copies, given))
            made = call(*given)
            for tensors, results in zip(before, made, strict=True):
                self._check(name, tensors, results)
            return made

        return checked


def _copies(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """A kernel may write into what it reads."""
    return tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in given)


def recorded(module: ir.Module, library: Any, found: dict[str, float]) -> Recording:
    """``library``, which has the kernels of ``module``; calls leave in ``found`` the largest error of each
    kernel, as a part of what its dtype allows.
    """
    ops: dict[tuple[str, Any], ir.Operation] = {}
    for op in kernels(module):
        ops.setdefault((kernel_name(op), _shapes(op)), op)

    def check(name: str, given: Inputs, made: Inputs) -> None:
        shapes = tuple(tuple(t.shape) for t in given if isinstance(t, torch.Tensor))
        op = ops[name, shapes]
        exact = run_kernel(op, list(map(_in_f64, given)), widen=True)
        tensors = [t for t in (*given, *made) if isinstance(t, torch.Tensor) and t.is_floating_point()]
        bound = (
            next(b for dtype, b in BOUNDS.items() if any(t.dtype == dtype for t in tensors))
            if tensors
            else 0.0
        )
        largest = max(map(magnitude, [*tensors, *exact]))
        for ours, reference in zip(made, exact, strict=True):
            allowed = bound * max(magnitude(reference), FLOOR * largest) if ours.is_floating_point() else 0.0
            error = difference(ours, reference)
            found[name] = max(found.get(name, 0.0), error / allowed if allowed else error)

    return Recording(library, check)


def _in_f64(value: Any) -> Any:
    """Of what a kernel is given: tensors of floats, in f64; others, and numbers, as they are."""
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _shapes(op: ir.Operation) -> tuple[tuple[int, ...], ...]:
    types = (a.type for a in op.regions[0].blocks[0].arguments)
    return tuple(tuple(t.shape) for t in types if isinstance(t, ir.RankedTensorType))
