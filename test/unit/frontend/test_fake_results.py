"""The table of wrong results of fake tensors: no superfluous entry, and a daily sample for missing ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from shardc.frontend.fake_results import CORRECTIONS, ONLY, corrected, correction_table

aten = torch.ops.aten
WALK = Path(__file__).parents[2] / "zoo" / "fake_results.py"
OPS = 12

torch.manual_seed(0)
HALF, ROWS, W = torch.randn(2, 8, 3, 3).bfloat16(), torch.randn(4, 8).bfloat16(), torch.randn(8)
STATISTICS = torch.zeros(8).bfloat16(), torch.ones(8).bfloat16()
LAST = torch.randn(1, 2, 4, 4).contiguous(memory_format=torch.channels_last)
POOLED, PLACES = torch.nn.functional.max_pool2d(LAST, 2, return_indices=True)
INDEX = torch.arange(6).reshape(3, 2).mT
NORM = (False, 0.1, 1e-5)
CUBE, REVERSED = torch.randn(10, 5, 10).mT, torch.randn(5, 10, 10).permute(2, 1, 0)
FLAT, IMAGE = torch.randn(5, 10).mT, torch.randn(1, 4, 6, 6).contiguous(memory_format=torch.channels_last)
CLASSES = torch.randn(2, 2, 1, 3).permute(0, 3, 2, 1)
EXPANDED, TURNED = torch.ones(()).bfloat16().expand(2, 3), torch.rand(3, 2).bfloat16().T
LABELS = torch.zeros(2, 4, 4, dtype=torch.long).mT

CALLS: dict[Any, tuple[Any, ...]] = {
    aten.native_layer_norm.default: (ROWS, [8], W, W, 1e-5),
    aten.native_layer_norm_backward.default: (
        ROWS[:0],
        ROWS[:0],
        [8],
        W[:0, None],
        W[:0, None],
        W,
        W,
        [True] * 3,
    ),
    aten.native_group_norm.default: (HALF, W, W, 2, 8, 9, 4, 1e-5),
    aten.native_group_norm_backward.default: (
        HALF,
        HALF,
        torch.ones(2, 4),
        torch.ones(2, 4),
        W,
        2,
        8,
        9,
        4,
        [True] * 3,
    ),
    aten.native_batch_norm.default: (HALF, W, W, W, W.abs(), *NORM),
    aten._native_batch_norm_legit.no_stats: (HALF, W, W, True, 0.1, 1e-5),
    aten._native_batch_norm_legit_no_training.default: (HALF, W, W, W, W.abs(), 0.1, 1e-5),
    aten._native_batch_norm_legit_functional.default: (HALF, *STATISTICS, *STATISTICS, True, 0.1, 1e-5),
    aten._batch_norm_with_update_functional.default: (HALF, *STATISTICS, *STATISTICS, 0.1, 1e-5),
    aten.mse_loss_backward.default: (W[0], ROWS, ROWS.float(), 1),
    aten.smooth_l1_loss_backward.default: (W[0], ROWS, ROWS.float(), 1, 1.0),
    aten.huber_loss.default: (ROWS, ROWS.float()),
    aten.huber_loss_backward.default: (ROWS[0, 0], ROWS.mT, ROWS.mT, 1, 1.0),
    aten.binary_cross_entropy.default: (ROWS.sigmoid(), ROWS.mT.contiguous().mT.sigmoid(), None, 0),
    aten.binary_cross_entropy_backward.default: (
        ROWS,
        ROWS.mT.contiguous().mT.sigmoid(),
        ROWS.sigmoid(),
        None,
        0,
    ),
    aten.soft_margin_loss.default: (ROWS, ROWS.float()),
    aten.soft_margin_loss_backward.default: (W[0], ROWS, ROWS.float(), 1),
    aten.normal.Tensor_Tensor: (ROWS, ROWS.float().abs()),
    aten.log_sigmoid_forward.default: (ROWS.mT,),
    aten._log_softmax_backward_data.default: (CLASSES, CLASSES, 1, torch.float32),
    aten.nll_loss2d_forward.default: (torch.randn(2, 3, 4, 4), LABELS, None, 0, -100),
    aten.pow.Scalar: (2.0, FLAT),
    aten.ldexp.Tensor: (FLAT, REVERSED),
    aten.native_dropout_backward.default: (FLAT, FLAT > 0, 2.0),
    aten.resize_as.default: (FLAT, FLAT),
    aten.channel_shuffle.default: (IMAGE, 2),
    aten.reflection_pad2d_backward.default: (torch.randn(1, 4, 8, 8), IMAGE, [1, 1, 1, 1]),
    aten.replication_pad2d_backward.default: (torch.randn(1, 4, 8, 8), IMAGE, [1, 1, 1, 1]),
    **dict.fromkeys(
        (aten.copysign.Tensor, aten.div.Tensor_mode, aten.floor_divide.default), (CUBE, REVERSED)
    ),
    **dict.fromkeys((aten.special_xlog1py.default, aten.xlogy.Tensor), (CUBE, REVERSED)),
    **dict.fromkeys((aten.heaviside.default, aten.logaddexp.default), (FLAT, REVERSED)),
    **dict.fromkeys((aten.logical_and.default, aten.logical_or.default), (FLAT, REVERSED)),
    aten.logaddexp2.default: (FLAT, REVERSED),
    aten.logit_backward.default: (TURNED.float(), EXPANDED.float()),
    **dict.fromkeys(ONLY, (EXPANDED, TURNED)),
    aten.logical_xor.default: (FLAT, REVERSED),
    aten.max_unpool2d.default: (POOLED, PLACES, [4, 4]),
    aten.index.Tensor: (torch.randn(8, 5, 4), [INDEX]),
}
OPTIONS = {aten.div.Tensor_mode: {"rounding_mode": "floor"}}


def form(made: Any) -> list[Any]:
    return [(x.dtype, tuple(x.shape), x.stride()) for x in pytree.tree_leaves(made)]


@pytest.mark.parametrize("op", CORRECTIONS, ids=str)
def test_each_correction_is_needed_and_right(op: Callable[..., Any]) -> None:
    """An entry of which the first half fails can go: this version of PyTorch predicts what it returns."""
    options = OPTIONS.get(op, {})
    came = op(*CALLS[op], **options)
    with FakeTensorMode() as mode:
        args = pytree.tree_map_only(torch.Tensor, mode.from_tensor, CALLS[op])
        predicted = op(*args, **options)
        assert form(predicted) != form(came)
        assert form(corrected(op, predicted, args, options)) == form(came)


def test_what_is_traced_after_a_call_sees_its_corrected_results() -> None:
    graph = make_fx(
        lambda x, w: [
            aten.native_layer_norm.default(x, [8], w, w, 1e-5)[1] * 2,
            aten.native_layer_norm(x, [8], x[0], x[0], 1e-5)[1],
        ],
        {**correction_table()},
        tracing_mode="fake",
    )(ROWS, W)
    calls = [node for node in graph.graph.nodes if node.target is aten.native_layer_norm.default]
    assert [[x.dtype for x in node.meta["val"]] for node in calls] == [
        [torch.bfloat16, torch.float32, torch.float32],
        [torch.bfloat16] * 3,
    ]
    (doubled,) = [node for node in graph.graph.nodes if node.target is aten.mul.Tensor]
    assert doubled.meta["val"].dtype == torch.float32


def test_a_gradient_of_a_layer_norm_is_contiguous() -> None:
    """What reads it transposed gets a copy where it needs one, such as the gradient of a group norm."""
    x, mean = torch.randn(2, 8, 4).mT, torch.zeros(2, 4, 1)
    given = (x, x, [8], mean, mean, torch.ones(8), torch.ones(8), [True] * 3)
    graph = make_fx(
        lambda x: aten.native_layer_norm_backward(x, x, *given[2:]), correction_table(), "fake", True
    )(x)
    (call,) = [n for n in graph.graph.nodes if n.target is aten.native_layer_norm_backward.default]
    real = aten.native_layer_norm_backward(*given)
    assert [t.stride() for t in call.meta["val"]] == [t.stride() for t in real]


def test_a_gradient_of_a_sum_in_halves_is_traced_as_it_lies() -> None:
    graph = make_fx(lambda x: torch.ones((), dtype=x.dtype).expand(2, 3) * x, correction_table(), "fake")(
        TURNED
    )
    (made,) = [node for node in graph.graph.nodes if node.target is aten.mul.Tensor]
    assert made.meta["val"].stride() == graph(TURNED).stride() == (1, 2)


@pytest.mark.slow
def test_todays_operators_return_what_is_predicted() -> None:
    """``test/zoo/fake_results.py`` walks all of them."""
    seed = f"{datetime.now(UTC):%Y%m%d}"
    command = [sys.executable, str(WALK), "--sample", str(OPS), "--seed", seed, "--samples", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    print(done.stdout)  # its first line has the seed and the ops
    assert done.returncode == 0, f"again with: {' '.join(command)}\n{done.stdout}\n{done.stderr[-3000:]}"
    assert f"{OPS} ops, calls" in done.stdout and "'compared'" in done.stdout
