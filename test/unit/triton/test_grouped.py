"""Matmuls of experts with counts of rows that are known to the GPU alone, against f64."""

import pytest
import torch

from shardc.backends.triton.compile import compile_kernels
from shardc.backends.triton.grouped import Experts, emit_experts, emit_experts_gradient
from shardc.backends.triton.matmul_model import Tiling
from shardc.backends.triton.targets import TARGETS

from .contractions import interpret

SM_90, SMALL = TARGETS["sm_90"], Tiling(16, 16, 16, 1, 2)
COUNTS = [[20, 0, 33, 16, 1], [0, 0, 70, 0, 0], [14, 14, 14, 14, 14], [3, 0, 0, 0, 0]]
"""Rows of each of 5 experts, of 70: experts without rows, one with all, whole blocks, and rows that no expert has."""


def _rows(counts: list[int]) -> list[slice]:
    ends = torch.tensor(counts).cumsum(0).tolist()
    return [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_each_row_by_the_matrix_of_its_expert(counts, turned):
    x, w = torch.randn(70, 24), torch.randn(5, 24, 40)
    ends = torch.tensor(counts).cumsum(0).int()
    kernel = emit_experts(Experts("experts", 5, 70, 40, 24, "f32", turned), SM_90, SMALL)
    (got,) = interpret(kernel, [x, w.mT.contiguous() if turned else w, ends], [((70, 40), torch.float32)])
    for rows, matrix in zip(_rows(counts), w.double(), strict=True):
        torch.testing.assert_close(got[rows].double(), x[rows].double() @ matrix, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_gradients_of_the_matrices(counts, turned):
    x, g = torch.randn(70, 24).bfloat16(), torch.randn(70, 40).bfloat16()
    ends = torch.tensor(counts).cumsum(0).int()
    kernel = emit_experts_gradient(Experts("gradient", 5, 70, 40, 24, "bf16", turned), SM_90, SMALL)
    shape = (5, 40, 24) if turned else (5, 24, 40)
    (got,) = interpret(kernel, [x, g, ends], [(shape, torch.bfloat16)])
    got = got.mT if turned else got
    exact = torch.stack([x[rows].double().T @ g[rows].double() for rows in _rows(counts)])
    torch.testing.assert_close(got.double(), exact, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("target", TARGETS)
def test_matrix_instructions(target, tmp_path):
    mixtral = Experts("experts", 8, 4096, 2048, 1024, "bf16")
    made = [
        emit_experts(mixtral, TARGETS[target]),
        emit_experts_gradient(Experts("gradient", 8, 4096, 2048, 1024, "bf16"), TARGETS[target]),
    ]
    for compiled in compile_kernels(made, [TARGETS[target]], tmp_path, processes=1):
        assert compiled.error is None
        (figures,) = compiled.functions
        assert (
            figures.matrix_ops > 0
            and figures.spill_bytes <= 16
            and figures.shared_bytes <= TARGETS[target].shared_bytes
        ), figures
