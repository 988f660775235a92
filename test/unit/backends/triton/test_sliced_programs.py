"""Triton kernels that read slices of what they compute, or reduce short rows, against eager in f64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from sliced_functions import ROWS, SLICES, X

FUNCTIONS = SLICES | ROWS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(check: Callable[..., None], name: str) -> None:
    check(FUNCTIONS[name], X)
    check(FUNCTIONS[name], torch.randn(33, 20, 4))
