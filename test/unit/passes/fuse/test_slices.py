"""Slices of what a kernel computes, short rows, and checks of many indices, against the unfused graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from shardc.backends.eager.interpreter import run
from shardc.diagnostics.oracle import ExecutionFailed
from shardc.passes.fuse.kern_fuse import fuse_module

from .conftest import assert_near, traced
from .sliced_functions import ROWS, SLICES, X, _coordinates

FUNCTIONS = SLICES | ROWS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(fuse: Any, name: str) -> None:
    f = FUNCTIONS[name]
    done = fuse(f, X)
    wanted = f(X)
    for found, one in zip(done.results, wanted if isinstance(wanted, list) else [wanted], strict=True):
        assert_near(found, one)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "a part and the whole"])
def test_one_kernel_has_all_ops(fuse: Any, name: str) -> None:
    done = fuse(FUNCTIONS[name], X)
    views = {"aten.slice.Tensor", "aten.select.int"}
    assert len(done.kernels) == 1 and set(done.stayed) <= views, (done.kernels, done.stayed)


def test_rows_of_16_bits_are_added_in_32(fuse: Any) -> None:
    x = torch.tensor([[256.0, 1.0, 1.0, 1.0]] * 40).bfloat16()
    (found,) = fuse(lambda x: (x * 1).sum(-1).float() - 200, x).results
    assert (found == 60).all() or (found == 59).all()  # rounded to 16 bits after the sum, or not


def test_a_result_is_written_once_and_its_slice_read_from_memory(fuse: Any) -> None:
    assert len(fuse(SLICES["a part and the whole"], X).kernels) <= 2


def test_rows_of_more_elements_are_reductions_as_before(fuse: Any) -> None:
    long, short = (str(fuse(lambda x: (x * 2).sum(-1) + 1, torch.randn(40, n)).module) for n in (5, 4))
    assert '"reduction"' in long and '"reduction"' not in short


def test_a_softmax_of_few_classes_computes_each_power_once(fuse: Any) -> None:
    """Its sums are read for each element, so they stay reductions."""
    assert '"reduction"' in str(fuse(lambda x: torch.softmax(x, -1) * 2, torch.randn(40, 4)).module)


def test_nan_and_the_sign_of_zero_are_those_of_a_reduction(fuse: Any) -> None:
    x = torch.zeros(70, 3)
    x[0, 1], x[1], x[2] = float("nan"), -0.0, torch.tensor([-0.0, 0.0, -0.0])
    (largest,) = fuse(lambda x: (x * 1).amax(-1) + 0, x).results
    (total,) = fuse(lambda x: (x + 0.0).sum(-1) * 1, x).results
    assert largest[0].isnan() and not largest[1:].isnan().any()
    assert not total[1:].signbit().any()


def test_an_expensive_op_is_not_computed_for_each_reader_of_a_part(fuse: Any) -> None:
    """Each of 40 rows reads the same row, so that it is written once."""
    done = fuse(lambda x: (x.exp().log1p().exp())[:1].expand(40, -1) * x + 1, torch.randn(40, 300))
    assert len(done.kernels) == 2


def test_more_indices_than_a_thread_checks_are_a_kernel(fuse: Any) -> None:
    table, index = torch.randn(300, 3), torch.randint(-300, 300, (40_000, 3))
    done = fuse(lambda w, i: F.relu(w[i]) * 2, table, index)
    assert "aten.index.Tensor" in {op for kernel in done.kernels for op in kernel} and not done.stayed
    index[39_999, 2] = 300
    module = traced(lambda w, i: F.relu(w[i]) * 2, [table, index])
    fuse_module(module)
    with pytest.raises(ExecutionFailed, match="index 300 is out of bounds for dimension 0 with size 300"):
        run(module, [[table], [index]])


def test_coordinates_of_a_norm_are_not_written(fuse: Any) -> None:
    assert fuse(_coordinates, X).kernels[0][-1] == "aten.sub.Tensor"
