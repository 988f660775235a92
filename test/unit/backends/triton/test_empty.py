"""Sums of no terms: matmuls without a K, rows without elements. They give what they start from, and read
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from shardc.backends.triton.aot.compile import compile_kernels
from shardc.cost.machine import GPUS

from .contractions import emitted, interpret
from .test_matmuls import product


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_a_product_without_terms_is_zero(element: str, target: str, tmp_path: Path) -> None:
    body, tensors = product((5, 7, 0), element=element)
    kernel = emitted(body, target)
    (got,) = interpret(kernel, tensors, [((5, 7), torch.float32)])
    assert torch.equal(got, torch.zeros(5, 7))
    (compiled,) = compile_kernels([kernel], [GPUS[target]], tmp_path, processes=1)
    assert compiled.error is None


@pytest.mark.slow
def test_what_stands_behind_it_is_computed() -> None:
    body, tensors = product((33, 20, 0))
    bias = torch.randn(20)
    b, (total,) = body.argument((20,)), body.results
    body.results = [body.map([total, (b, "d1")], "%s = arith.addf %0, %1 : f32\n%r = math.exp %s : f32")]
    (got,) = interpret(emitted(body), [*tensors, bias], [((33, 20), torch.float32)])
    torch.testing.assert_close(got, bias.exp().expand(33, 20))


def test_sums_over_no_rows_and_no_columns(check: Callable[..., None]) -> None:
    check(lambda x: x.sum(-1) + 1, torch.randn(6, 0))
    check(lambda x: x.sum(0) + 1, torch.randn(0, 6))
