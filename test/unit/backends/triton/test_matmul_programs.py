"""Functions fused with their matmuls in kernels, as Triton modules in the interpreter: against
eager in f64.
"""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.backends.torch.emit_graph import emit_graph
from shardc.cost.machine import GPUS
from shardc.dynamo.program import load
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.kern_fuse import fuse_module

from .contractions import interpreter
from .interpreted import InterpretedLibrary

pytest.importorskip("triton", reason="Triton is not installed")


@pytest.fixture(autouse=True)
def same_numbers():
    """Each test draws the same numbers in every run."""
    torch.manual_seed(0)


def check(f, *tensors: torch.Tensor, target: str = "sm_90", near: float = 2e-5) -> None:
    """Every matmul of ``f`` is in a kernel, and what the kernels give is right."""
    module = import_graph(make_fx(lambda *t: list(f(*t)), tracing_mode="fake")(*tensors), "forward").module
    fuse_module(module, lone=True, matmuls="generated")
    exact = f(*(t.double() for t in tensors))
    text = emit_graph(module, list(range(len(exact))))
    library = InterpretedLibrary(module, GPUS[target], interpreter())
    assert "matmul" in [e.kind for e in library.emitted.values()]
    assert not any(name in text for name in ("aten.mm", "aten.addmm", "aten.bmm"))
    found = load(text, library)(SimpleNamespace(device=torch.device("cpu")), list(tensors))
    for got, wanted in zip(found, exact, strict=True):
        scale = max(1.0, wanted.abs().max().item())
        torch.testing.assert_close(got.double(), wanted, rtol=near, atol=near * scale)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", GPUS)
def test_a_layer_of_a_transformer(target):
    """Bias, gelu, and a residual behind matmuls of [batch, length, size] tensors."""
    x, up, bias, down = torch.randn(2, 17, 24), torch.randn(40, 24), torch.randn(40), torch.randn(24, 40)
    check(lambda x, u, b, d: (x + F.linear(F.gelu(F.linear(x, u, b)), d),), x, up, bias, down, target=target)


def test_gradients_of_a_linear_layer():
    x, w, g = torch.randn(34, 24), torch.randn(40, 24), torch.randn(34, 40)

    def gradients(x, w, g):
        y = x @ w.t()
        inner = g * (y > 0)
        return inner @ w, inner.t() @ x, inner.sum(0)

    check(gradients, x, w, g)


def test_narrow_operands():
    x, w, b = torch.randn(33, 24).bfloat16(), torch.randn(24, 40).bfloat16(), torch.randn(40).bfloat16()
    check(lambda x, w, b: (torch.relu(torch.addmm(b, x * 2, w)),), x, w, b, near=2e-2)


def test_batches_with_scales():
    q, k = torch.randn(6, 9, 16), torch.randn(6, 11, 16)
    check(lambda q, k: (torch.bmm(q, k.transpose(1, 2)) * 0.25,), q, k)
