"""Estimates of kernels and of calls of libraries, and who computes a matmul by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

from shardc.backends.triton.estimates import Estimator
from shardc.backends.triton.target import TritonTarget
from shardc.compiler.modelled_regions import ModelledRegions
from shardc.cost.kernel import stream_s
from shardc.cost.library import matmul_call
from shardc.cost.machine import GPUS, Gpu
from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.grouping.capabilities import ALL
from shardc.passes.fuse.grouping.explain import FusionReport, explain_fusion
from shardc.passes.fuse.grouping.region import EveryRegion, Verdict
from shardc.report.roofline import roofline

from .programs import as_list, emitted, fused
from .test_golden import CASES

H200 = GPUS["sm_90"]
EVERY = pytest.mark.parametrize("target", GPUS.values(), ids=GPUS)


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def chosen(f: Callable[..., Any], *tensors: Tensor, target: Gpu = H200) -> tuple[ir.Module, FusionReport]:
    """The program of ``f``, fused as the models say, and the report of it."""
    module = import_graph(make_fx(lambda *t: as_list(f(*t)), tracing_mode="fake")(*tensors), "forward").module
    return module, explain_fusion(module, matmuls=EveryRegion(ModelledRegions(TritonTarget(target))))


@EVERY
@pytest.mark.parametrize("name", [name for name in CASES if name != "adamw"])
def test_no_kernel_is_faster_than_the_roofline(name: str, target: Gpu) -> None:
    function, given = CASES[name]
    for kernel in emitted(fused(function, *given), target):
        assert kernel.estimate is not None
        assert 0 < kernel.estimate.roofline_s < kernel.estimate.seconds
        assert kernel.estimate.bound == "memory" and not kernel.estimate.flops


def test_traffic_is_what_a_kernel_reads_and_writes() -> None:
    """A gathered table counts as what is asked for, a tensor that is read twice once."""
    table, index = torch.empty(50000, 64), torch.zeros(100, dtype=torch.int64)
    (kernel,) = emitted(fused(lambda t, i: torch.sin(F.embedding(i, t)), table, index))
    assert kernel.estimate.moved_bytes == 2 * 100 * 64 * 4 + 100 * 8 + 8  # the largest wrong index
    (kernel,) = emitted(fused(lambda x: torch.softmax(x, -1), torch.empty(64, 128)))
    assert kernel.estimate.moved_bytes == 2 * 64 * 128 * 4


@EVERY
def test_large_streams_reach_nine_tenths_of_the_memory(target: Gpu) -> None:
    moved = 1 << 32
    assert moved / stream_s(moved, 1 << 18, 4, target) == pytest.approx(0.9 * target.memory_bytes_s, rel=0.02)


def test_few_programs_do_not_fill_the_memory() -> None:
    """One program that walks a long row waits for each of its steps."""
    assert stream_s(1 << 20, 1, 8, H200, steps=256) > 256 * 0.5e-6 > stream_s(1 << 20, 256, 8, H200)


@EVERY
def test_libraries_are_a_little_faster_than_the_same_tile_of_ours(target: Gpu) -> None:
    def ours(x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    _, report = chosen(ours, meta(4096, 4096), meta(4096, 4096), target=target)
    ((_, verdict),) = report.choices
    assert not verdict.generated and "as calls" in verdict.why and "by the roofline" in verdict.why
    call = matmul_call(1, 4096, 4096, 4096, 2, True, target)
    assert call.roofline_s < call.seconds < 4 * call.roofline_s and call.bound == "arithmetic"


@EVERY
def test_what_saves_traffic_goes_into_the_kernel(target: Gpu) -> None:
    """Few terms and much around the product: it is written and read again, if it is a call."""
    module, report = chosen(
        lambda x, w, y: F.relu(x @ w) + y, meta(8192, 64), meta(64, 8192), meta(8192, 8192), target=target
    )
    assert [verdict.generated for _, verdict in report.choices] == [True]
    assert "torch.aten.mm" not in str(module)


def test_products_of_f32_are_left_to_the_library() -> None:
    """Which has faster ones where no matrix instructions may be used; with tf32 the same decision
    is another.
    """
    f32 = {"dtype": torch.float32}
    _, report = chosen(lambda x, w: F.relu(x @ w), meta(4096, 4096, **f32), meta(4096, 4096, **f32))
    assert [verdict.generated for _, verdict in report.choices] == [False]
    exact, tf32 = (matmul_call(1, 4096, 4096, 4096, 4, matrix, H200).seconds for matrix in (False, True))
    assert exact > 4 * tf32


@EVERY
def test_attention_under_a_mask_is_a_kernel(target: Gpu) -> None:
    """Those of PyTorch that take a mask are slower than flash attention; AMD has none, and scores would be
    written and read several times.
    """
    q, mask = meta(2, 8, 2048, 64), meta(1, 1, 2048, 2048, dtype=torch.bool)
    _, report = chosen(
        lambda q, k, v, m: torch.ops.shardc.attention(q, k, v, m, False, 0.125)[0],
        q,
        q,
        q,
        mask,
        target=target,
    )
    assert [verdict.generated for _, verdict in report.choices] == [True]


def test_equal_pieces_are_estimated_once_and_equally() -> None:
    w = meta(256, 256)
    model = ModelledRegions(TritonTarget(H200))
    module = import_graph(
        make_fx(lambda x, w: [F.gelu(F.gelu(F.gelu(x @ w) @ w) @ w)], tracing_mode="fake")(meta(512, 256), w),
        "forward",
    ).module
    report = explain_fusion(module, matmuls=EveryRegion(model))
    assert len(report.choices) == 3 and len(model._known) < 3
    assert len({verdict for _, verdict in report.choices}) == len(model._known)


def loss_step(rows: int, classes: int, size: int, target: Gpu) -> FusionReport:
    """A linear layer, its cross entropy and their gradients, as a step is traced."""

    def f(x: Tensor, w: Tensor, index: Tensor, share: Tensor) -> tuple[Tensor, ...]:
        logp = torch.ops.aten._log_softmax((x @ w.t()).float(), 1, False)
        slopes = torch.zeros(rows, classes, device=x.device).scatter(1, index, -1.0) * share
        back = torch.ops.aten._log_softmax_backward_data(slopes, logp, 1, torch.float32).to(x.dtype)
        return logp.gather(1, index), back @ w, back.t() @ x

    given = (
        meta(rows, size),
        meta(classes, size),
        meta(rows, 1, dtype=torch.int64),
        meta(rows, 1, dtype=torch.float32),
    )
    module = import_graph(make_fx(lambda *t: list(f(*t)), tracing_mode="fake")(*given), "forward").module
    return explain_fusion(
        module, matmuls=EveryRegion(ModelledRegions(TritonTarget(target))), capabilities=ALL
    )


@pytest.mark.sampled(1)
@EVERY
@pytest.mark.parametrize("size", [512, 2048])
def test_logits_are_not_held(size: int, target: Gpu) -> None:
    """The head of a Llama 3 with 8192 tokens: computing logits twice takes at most half as long again."""
    report = loss_step(8192, 128256, size, target)
    (verdict,) = {verdict for _, verdict in report.choices}
    assert verdict.generated and verdict.why.endswith("kernels hold no logits (6.3 GB)")
    assert [k.name.rpartition("_")[0] for k in report.kernels] == [
        "linear_cross_entropy",
        "linear_cross_entropy_backward",
    ]
    assert all(op.number in {o.number for k in report.kernels for o in k.ops} for op, _ in report.choices)


def test_logits_that_cost_too_much_to_compute_twice_stay() -> None:
    """As what decides says; the pair of calls has the reason."""

    def f(x: Tensor, w: Tensor, index: Tensor) -> Tensor:
        return F.log_softmax(x @ w.t(), 1).gather(1, index)

    f32 = {"dtype": torch.float32}
    given = meta(8192, 4096, **f32), meta(32000, 4096, **f32), meta(8192, 1, dtype=torch.int64)
    module = import_graph(make_fx(lambda *t: [f(*t)], tracing_mode="fake")(*given), "forward").module
    slow = EveryRegion(
        lambda region: Verdict(False, "too slow") if region.spared_bytes else Verdict(False, "")
    )
    report = explain_fusion(module, matmuls=slow, capabilities=ALL)
    assert any(d.why == "too slow" and not d.fused for _, _, d in report.pairs)
    assert not any("linear_cross_entropy" in kernel.name for kernel in report.kernels)


def experts(rows: Tensor, matrices: Tensor, ends: Tensor, grad: Tensor) -> list[Tensor]:
    made = torch._grouped_mm(rows, matrices, offs=ends)
    return [made, torch._grouped_mm(rows.t(), grad, offs=ends)]


@EVERY
def test_experts_are_kernels_where_pytorch_has_a_loop(target: Gpu) -> None:
    """64 experts of 1024 rows each: PyTorch has one kernel for bf16 on sm_90 and sm_100, else 64 products."""
    given = meta(65536, 1024), meta(64, 1024, 2048), meta(64, dtype=torch.int32), meta(65536, 2048)
    module = import_graph(make_fx(experts, tracing_mode="fake")(*given), "forward").module
    report = explain_fusion(
        module, matmuls=EveryRegion(ModelledRegions(TritonTarget(target))), capabilities=ALL
    )
    assert [v.generated for _, v in report.choices] == 2 * [target.name in ("sm_80", "gfx942")]
    assert all(v.why.startswith(f"estimated for {target.name}: ") for _, v in report.choices)
    estimates = [found.estimate for found in Estimator(target).program(module)]
    assert all(e.flops == 2 * 65536 * 1024 * 2048 and e.seconds > 0.95 * e.roofline_s for e in estimates)


def test_the_table_has_each_kernel_and_call() -> None:
    module, _ = chosen(lambda x, w: torch.cumsum(F.gelu(x @ w) + x, 0), meta(4096, 4096), meta(4096, 4096))
    found = Estimator(H200).program(module)
    lines = roofline(found, TritonTarget(H200))
    assert "989 TFLOP/s in 16 bits, 4.8 TB/s" in lines[0]
    names = [line.split()[0] for line in lines[2:]]
    assert names == ["gelu_add_0", "aten.mm", "aten.cumsum", "total"]
    assert "arithmetic" in next(line for line in lines if "aten.mm" in line)
    assert "memory" in next(line for line in lines if "gelu_add" in line)
