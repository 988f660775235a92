"""Rules of Fourier transforms."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

COMPLEX = sample(4, 6, 2, dtype=torch.complex128)
CALLS: list[tuple[str, tuple[Any, ...], str]] = [
    ("aten._fft_c2c", (COMPLEX, (1,), 0, True), "([a,b,c])->([a,d,c]) replicate={b,d}"),
    ("aten._fft_c2c", (COMPLEX, (2, 0), 1, False), "([a,b,c])->([d,b,e]) replicate={a,c,d,e}"),
    ("aten._fft_r2c", (sample(4, 6), (1,), 0, True), "([a,b])->([a,c]) replicate={b,c}"),
    ("aten._fft_c2r", (sample(4, 4, dtype=torch.complex128), (1,), 2, 6), "([a,b])->([a,c]) replicate={b,c}"),
]


@pytest.mark.parametrize(("target", "arguments", "text"), CALLS)
def test_transform(target: str, arguments: tuple[Any, ...], text: str) -> None:
    rule = prove(target, arguments).rule
    assert str(rule) == text
    assert rule.linear == (frozenset({0}),)
