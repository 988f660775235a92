"""Functions of tensors as programs with Triton kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

from shardc.backends.body.extract import kernel_name, kernels
from shardc.backends.torch.emit_graph import emit_graph
from shardc.backends.triton.emit.emit import emit_kernel
from shardc.backends.triton.emit.emitted import Emitted
from shardc.backends.triton.interpreter.interpret import Interpreter
from shardc.cost.machine import GPUS, Gpu
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.kern_fuse import fuse_module

SM_90 = GPUS["sm_90"]
BOUNDS = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""Of an error, relative to the largest element of a result, by the coarsest dtype there is."""


def as_list(made: Tensor | tuple[Tensor, ...] | list[Tensor]) -> list[Tensor]:
    return [made] if isinstance(made, Tensor) else list(made)


def fused(f: Callable[..., Any], *tensors: Tensor) -> ir.Module:
    """The graph of ``f`` with its kernels, lone ops among them."""
    module = import_graph(
        make_fx(lambda *given: as_list(f(*given)), tracing_mode="fake")(*tensors), "forward"
    ).module
    fuse_module(module, lone=True)
    return module


def emitted(module: ir.Module, target: Gpu = SM_90) -> list[Emitted]:
    """Each kernel of a module once."""
    found = {kernel_name(op): op for op in kernels(module)}
    return [emit_kernel(op, target) for op in found.values()]


def run_in_interpreter(interpreter: Interpreter, f: Callable[..., Any], *tensors: Tensor) -> None:
    """Compares the kernels of ``f`` with eager in f64: a NaN for a NaN, dtypes and whole numbers
    as they are.
    """
    module = fused(f, *tensors)
    made = emitted(module)
    assert made, "no kernel was made"
    eager = as_list(f(*tensors))
    exact = as_list(f(*(t.double() if t.is_floating_point() else t for t in tensors)))
    found = interpreter.run(emit_graph(module, list(range(len(exact)))), made, tensors)
    for got, own, wanted in zip(found, eager, exact, strict=True):
        assert got.dtype == own.dtype and got.shape == own.shape
        if not own.is_floating_point():
            assert torch.equal(got, own)
            continue
        dtypes = [t.dtype for t in (own, *tensors) if t.is_floating_point()]
        bound = max(BOUNDS[d] for d in dtypes)
        finite = wanted[wanted.isfinite()]
        scale = max(1.0, finite.abs().max().item()) if finite.numel() else 1.0
        near = torch.isclose(own.double(), wanted.double(), rtol=bound, atol=bound * scale, equal_nan=True)
        # Where eager is far off too, as on the other side of a jump of fmod, a result is eager's.
        wanted = torch.where(near, wanted.double(), own.double())
        torch.testing.assert_close(got.double(), wanted, rtol=bound, atol=bound * scale, equal_nan=True)
