"""Kernels for NEON, emulated where the tools of ``aarch64.py`` are installed (see there), next to eager and
to f64.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from . import aarch64
from .random_programs.check import problem
from .random_programs.how import How
from .test_every_kernel import train
from .test_kinds_of_kernels import KINDS, program_of

pytestmark = pytest.mark.skipif(bool(aarch64.missing()), reason=f"not installed: {aarch64.missing()}")


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[aarch64.Emulated]:
    """What is compiled; each kernel is run by two threads, if so many pay."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    return aarch64.pretend(monkeypatch, tmp_path, threads=2)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_at_odd_sizes(kind: str, libraries: list[aarch64.Emulated]) -> None:
    """Forward and backward."""
    refusals: list[str] = []
    assert problem(program_of(kind), How(matmuls="generated"), refusals) == "" and not refusals
    assert any(library.called for library in libraries)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "convnet"])
def test_every_kernel_of_a_training_step(
    libraries: list[aarch64.Emulated],
    seen: dict[str, float],
    compiled: Callable[..., Any],
    kind: str,
    dtype: torch.dtype,
) -> None:
    """Against its body in f64."""
    train(compiled, kind, dtype)
    assert len(seen) > 5 and max(seen.values()) <= 1, seen
    assert set(seen) == {name for library in libraries for name in library.called}


def test_a_matmul_is_of_vector_instructions(libraries: list[aarch64.Emulated]) -> None:
    """Four lanes of f32, and no lane by itself in the innermost loop: 24 accumulators of the 32 registers."""
    x, y = torch.randn(64, 96), torch.randn(96, 80)
    settings = {"matmuls": "generated"}
    torch.testing.assert_close(
        torch.compile(lambda x, y: torch.relu(x @ y), backend="shardc", options=settings)(x, y),
        torch.relu(x @ y),
    )
    (library,) = libraries
    assert len(re.findall(r"\tfmla\tv\d+\.4s", library.assembly)) >= 16
