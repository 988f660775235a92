"""Every kernel of a training step, called in Triton's interpreter on the step's own tensors,
against its body in f64.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
import triton_subjects
from convnet import ConvNet
from language_models import tiny
from recording import Recording, recorded
from torch import nn
from torch_mlir import ir

from shardc.backends.base import CompiledKernels
from shardc.backends.body.extract import kernels as kernels_of
from shardc.backends.cpu.target import CpuTarget
from shardc.backends.triton.interpreter.interpret import Interpreter
from shardc.compiler.compilation import Compilation
from shardc.diagnostics.dynamo import ShardcFallbackWarning

from .interpreted import InterpretedLibrary
from .programs import SM_90

TINY = ("llama", "gpt2")


def made(kind: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """One layer, or block, of odd sizes, and a batch: the models whose code the sweep compiles."""
    if kind == "convnet":
        return ConvNet(), (torch.randn(4, 3, 9, 9),)
    model, batch = triton_subjects.training(kind, "tiny")
    return WithLoss(model, tuple(batch)), tuple(batch.values())


class WithLoss(nn.Module):
    """``names``: of what the model is given, in order."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        out = self.model(**dict(zip(self.names, given, strict=True)))
        return out if isinstance(out, torch.Tensor) else out.loss


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "dtype", "matmuls"),
    [
        ("llama", torch.float32, "extern"),
        ("gpt2", torch.bfloat16, "extern"),
        ("llama", torch.float32, "generated"),
        ("bert", torch.float32, "generated"),
        ("vit", torch.float32, "generated"),
        ("t5", torch.float32, "generated"),
        ("convnet", torch.float32, "extern"),
    ],
    ids=[
        "llama",
        "gpt2 bf16",
        "llama with its matmuls",
        "bert with dropout",
        "vit with dropout",
        "t5 with dropout",
        "convnet",
    ],
)
def test_every_kernel_of_a_training_step(
    interpreter: Interpreter,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
    dtype: torch.dtype,
    matmuls: str,
) -> None:
    """Forward, backward, and AdamW of all parameters in one launch."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("shardc.dynamo.program_cache.store", lambda *_: None)
    found: dict[str, float] = {}
    alive: list[ir.Module] = []

    def compiled(self: CpuTarget, module: ir.Module, tf32: bool = False) -> CompiledKernels:
        return CompiledKernels(tmp_path if kernels_of(module) else None)

    def interpreted(self: Compilation, module: ir.Module, path: Path) -> Recording:
        alive.append(ir.Module.parse(module.operation.get_asm(), module.context))
        return recorded(alive[-1], InterpretedLibrary(alive[-1], SM_90, interpreter), found)

    monkeypatch.setattr(CpuTarget, "compile", compiled)
    monkeypatch.setattr(Compilation, "_load", interpreted)
    torch._dynamo.reset()
    model, batch = (tiny(kind), (torch.randint(0, 64, (2, 17)),)) if kind in TINY else made(kind)
    model = model.to(dtype).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShardcFallbackWarning)
        options = {"fuse": True, "matmuls": matmuls}
        torch.compile(model, backend="shardc", options=options)(*batch).backward()
        torch.compile(optimizer.step, backend="shardc", options=options)()
    torch._dynamo.reset()
    assert len(found) > (5 if kind == "convnet" else 9) and max(found.values()) <= 1, found
