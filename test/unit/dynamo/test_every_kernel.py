"""Each kernel of the test models, on the very tensors that it is called with, against its body in f64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_mlir import ir

from shardc.backends.body.extract import kernel_name
from shardc.backends.body.extract import kernels as kernels_of
from shardc.backends.eager.linalg import run_kernel
from shardc.backends.eager.tolerance import difference, magnitude
from shardc.driver import kernels
from shardc.runtime.kernels import Library

from .language_models import tiny

BOUNDS = {torch.bfloat16: 2.0**-7, torch.float32: 1e-5, torch.float64: 1e-13}
"""Of a result's largest error, relative to its largest element, by the coarsest dtype that a kernel reads or makes. Seen: 2**-7.8,
6e-6 and 7e-14. bf16 kernels compute in f32, and round what they make once, and again where they read it; AdamW's ``1 - beta ** step``
loses three digits in f32."""
FLOOR = 0.05
"""A result that is smaller than this part of the largest number that a kernel read or made counts as so large: a mean, say, which
cancels out."""

Inputs = tuple[torch.Tensor, ...]
Check = Callable[[str, Inputs, Inputs], None]


class Recording:
    """A library whose kernels hand their name, inputs and results to ``check``."""

    def __init__(self, library: Library, check: Check) -> None:
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


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, float]]:
    """The largest error of each kernel that was called, as a part of what its dtype allows; filled by calls."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    found: dict[str, float] = {}
    alive: list[ir.Module] = []
    real = kernels._library

    def recording(graph: Any) -> Recording | None:
        library = real(graph)
        if library is None:
            return None
        ops: dict[tuple[str, Any], ir.Operation] = {}
        copy = ir.Module.parse(graph.module.operation.get_asm(), graph.module.context)  # the graph itself is worked on
        alive.append(copy)
        for op in kernels_of(copy):
            ops.setdefault((kernel_name(op), _shapes(op)), op)

        def check(name: str, given: Inputs, made: Inputs) -> None:
            shapes = tuple(tuple(t.shape) for t in given if isinstance(t, torch.Tensor))
            op = ops[name, shapes]
            exact = run_kernel(op, [t.double() if t.is_floating_point() else t for t in given], widen=True)
            tensors = [t for t in (*given, *made) if isinstance(t, torch.Tensor) and t.is_floating_point()]
            bound = next(b for dtype, b in BOUNDS.items() if any(t.dtype == dtype for t in tensors)) if tensors else 0.0
            largest = max(map(magnitude, [*tensors, *exact]))
            for ours, reference in zip(made, exact, strict=True):
                allowed = bound * max(magnitude(reference), FLOOR * largest) if ours.is_floating_point() else 0.0
                error = difference(ours, reference)
                found[name] = max(found.get(name, 0.0), error / allowed if allowed else error)

        return Recording(library, check)

    monkeypatch.setattr(kernels, "_library", recording)
    monkeypatch.setattr("shardc.driver.program_cache.store", lambda *_: None)
    yield found


def _shapes(op: ir.Operation) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(ir.RankedTensorType(a.type).shape) for a in op.regions[0].blocks[0].arguments)


class ConvNet(nn.Module):
    """Convolution, batch norm, group norm, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU()
        )
        self.head = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(image).mean((2, 3))).float().log_softmax(-1).square().mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert", "convnet"])
def test_every_kernel_of_a_training_step(seen: dict[str, float], compiled: Callable[..., Any], kind: str, dtype: torch.dtype) -> None:
    """Forward, backward, and AdamW of all parameters."""
    model = (ConvNet() if kind == "convnet" else tiny(kind)).to(dtype).train()
    given = torch.randn(4, 3, 9, 9).to(dtype) if kind == "convnet" else torch.randint(0, 64, (2, 17))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    compiled(model, fuse=True)(given).backward()
    compiled(optimizer.step, fuse=True)()
    assert len(seen) > 5 and max(seen.values()) <= 1, seen
