"""Arguments that are read across the rows: tiles are transposed in registers."""

from __future__ import annotations

import pytest
import torch

DTYPES = [torch.float32, torch.float64, torch.int32, torch.int64, torch.bfloat16, torch.uint8, torch.bool]


@pytest.mark.parametrize("shape", [(1, 70), (15, 17), (16, 64), (65, 130), (63, 1), (128, 64)])
def test_a_matrix_and_its_transpose(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(shape), torch.randn(shape[::-1])
    _same(lambda x, y: (torch.relu(x.T) * 2 + y).contiguous(), x, y)
    _same(lambda x, y: ((x.T + y).exp() + x.T[:, :1]).contiguous(), x, y)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = (torch.randint(2, size).to(dtype) for size in ((70, 90), (90, 70)))
    _same(lambda x, y: torch.where(y == x.T, x.T, y).contiguous(), x, y)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(3, 40, 70), (1, 129, 16), (5, 16, 33), (2, 3, 1000)])
def test_batches_of_any_shape(shape: tuple[int, ...], threads: int) -> None:
    """The axis along which results are contiguous is the row, whatever the sizes are."""
    torch.manual_seed(0)
    x, w = torch.randn(shape), torch.randn(shape[1])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        _same(lambda x, w: (x.mT * w + x.mT.sin()).contiguous(), x, w)
        _same(lambda x, w: (x.permute(2, 0, 1) * w).contiguous(), x, w)
        _same(lambda x, w: torch.nn.functional.layer_norm(x.mT, (len(w),), w, w), x, w)
    finally:
        torch.set_num_threads(before)


def test_two_tensors_across() -> None:
    x, y = torch.randn(3, 50, 70), torch.randn(70, 50)
    _same(lambda x, y: (x.mT * y + (x + 1).mT).contiguous(), x, y)
    _same(lambda x, y: (x.permute(1, 0, 2) + y.T[:, None]).contiguous() * x.sum(), x, y)


def _same(function, *inputs: torch.Tensor) -> None:
    torch._dynamo.reset()
    made, eager = torch.compile(function, backend="shardc", dynamic=False)(*inputs), function(*inputs)
    torch.testing.assert_close(made, eager)
    assert made.stride() == eager.stride()
