"""Workspace of convolutions and experts' products inside a call, against PyTorch's allocator."""

import pytest
import torch

import shardc.runtime.operators.experts  # noqa: F401  (defines the operators)
from shardc.backends.torch.memory.call_workspace import call_workspace_bytes
from shardc.runtime.kernels.library import cpu_features
from shardc.runtime.report.live_bytes import LiveBytes

CONVOLUTION = torch.ops.aten.convolution.default
BACKWARD = torch.ops.aten.convolution_backward.default
X, WEIGHT, GRADIENT = torch.randn(4, 64, 32, 32), torch.randn(64, 64, 3, 3), torch.randn(4, 64, 32, 32)
HOW = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
SLACK = 1 << 12
"""Bytes of biases and of sums over them."""


@pytest.mark.skipif("avx512f" not in cpu_features(), reason="oneDNN's layouts are those of AVX-512")
@pytest.mark.parametrize(
    ("op", "args"),
    [(CONVOLUTION, (X, WEIGHT, None, *HOW)), (BACKWARD, (GRADIENT, X, WEIGHT, [64], *HOW, [True] * 3))],
    ids=["forward", "backward"],
)
def test_convolutions_copy_into_blocks(op, args):
    _check(op, args, SLACK)


ROWS, EMPTY, EXPERTS = 4096, 4096, 4
IDS = torch.cat((torch.arange(ROWS) % EXPERTS, torch.full((EMPTY,), -1)))
ROW, OTHER, MATRICES = torch.randn(len(IDS), 96), torch.randn(len(IDS), 64), torch.randn(EXPERTS, 96, 64)
SHARE = ROWS / len(IDS) / EXPERTS


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (torch.ops.shardc.expert_mm.default, (ROW, MATRICES, IDS, 1, SHARE)),
        (torch.ops.shardc.expert_outer.default, (ROW, OTHER, IDS, EXPERTS, 1, SHARE)),
    ],
    ids=["product", "gradient"],
)
def test_experts_copy_the_rows_of_one(op, args):
    _check(op, args, len(IDS) * 8)


def _check(op, args, slack: int) -> None:
    live = LiveBytes()
    op(*args)
    live.start()
    live.sample()
    made = op(*args)
    live.stop()
    results = [made] if isinstance(made, torch.Tensor) else list(made)
    planned = sum(r.nbytes for r in results) + call_workspace_bytes(str(op), args, made)
    assert abs(live.peak_bytes - planned) < slack


def test_other_calls_take_nothing():
    assert call_workspace_bytes("aten.mm.default", (X, WEIGHT), X) == 0
