"""Kernels for CPUs with other vectors than this machine's, next to eager and to f64: AVX2 and its 16
registers of 8 lanes where there is AVX-512, and a machine without an instruction that multiplies bf16. NEON:
``test_neon.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from shardc.runtime.kernels.library import cpu_features

from .random_programs.check import problem
from .random_programs.how import How
from .test_every_kernel import train
from .test_kinds_of_kernels import program_of

AVX2 = "avx avx2 bmi1 bmi2 f16c fma sse sse2 sse4_1 sse4_2 ssse3"
TARGETS = {"AVX2": f"x86_64 {AVX2}", "AVX-512": f"x86_64 {AVX2} avx512bw avx512cd avx512dq avx512f avx512vl"}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    if lacking := set(TARGETS[request.param].split()[1:]) - cpu_features():
        pytest.skip(f"this machine has no {', '.join(sorted(lacking))}")
    monkeypatch.setenv("SHARDC_TARGET", TARGETS[request.param])
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    return request.param


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "kind",
    [
        "pointwise",
        "row reduction",
        "cross entropy",
        "matmul with what is around it",
        "attention",
        "rows at indices",
    ],
)
def test_kinds_at_odd_sizes(kind: str, target: str) -> None:
    """Forward and backward."""
    refusals: list[str] = []
    assert problem(program_of(kind), How(matmuls="generated"), refusals) == "" and not refusals


@pytest.mark.slow
def test_every_kernel_of_a_training_step_in_bf16(
    target: str, seen: dict[str, float], compiled: Callable[..., Any]
) -> None:
    """Against its body in f64."""
    train(compiled, "llama", torch.bfloat16)
    assert len(seen) > 5 and max(seen.values()) <= 1, seen
