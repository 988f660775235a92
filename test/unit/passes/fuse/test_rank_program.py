"""Rank programs: fused between collectives and inside loops, and still the single-device program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from shardc.backends.eager.proof.compare import prove_step
from shardc.dialects.aten.call import target_name
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.passes.fuse.kern_fuse import KernFuse, fuse_module
from shardc.passes.manager.pass_pipelines import build, run
from shardc.passes.manager.program import program_functions
from shardc.step.shard import compile_capture
from shardc.step.sharding.mesh import make_mesh
from shardc.step.values import example_inputs


class _Block(nn.Module):
    """Has draws of one shape in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.drop(input) + self.drop(self.down(nn.functional.gelu(self.up(self.norm(input)))))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("plan", "mesh", "micro_batches"),
    [
        ("data", {"data": 2}, 1),
        ("tensor", {"tensor": 2}, 1),
        ("zero3*tensor", {"data": 2, "tensor": 2}, 1),
        ("data", {"data": 2}, 2),
    ],
)
def test_a_fused_rank_program_is_the_single_device_program(
    plan: str, mesh: dict[str, int], micro_batches: int
) -> None:
    torch.manual_seed(0)
    model = _Block()
    optimizer = torch.optim.AdamW(model.parameters())
    batch: Any = {"input": torch.randn(8, 8)}
    capture = capture_step(
        model, optimizer, batch, loss=lambda out, _: out.square().mean(), context=new_context()
    )
    compiled = compile_capture(capture, make_mesh(mesh, micro_batches), plan)
    module = compiled.rank_module
    before = sum(str(module).count(f"dist.{name}") for name in ("all_reduce", "all_gather", "reduce_scatter"))
    KernFuse().run(module)
    module.operation.verify()
    text = str(module)
    assert text.count('"kern.kernel"') >= 6
    assert before == sum(
        text.count(f"dist.{name}") for name in ("all_reduce", "all_gather", "reduce_scatter")
    )
    if micro_batches > 1:
        assert '"kern.kernel"' in text[text.index('"dist.loop"') : text.index('"dist.yield"')]
    proof = prove_step(compiled.global_module, module, example_inputs(capture, optimizer, batch), steps=2)
    assert proof.passed, proof.render()
    # a gradient that only its update reads is inside of a kernel: the moments made of it are compared
    moments = {row.name.removesuffix("/exp_avg") for row in proof.exact.rows if row.role == "opt_state"}
    assert {name.removeprefix("grad:") for name in proof.exact.unobserved} <= moments


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.unflatten(-1, (4, 2)).transpose(1, 2) for x in self.inward(input).chunk(3, -1))
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.outward(out.transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    ("plan", "mesh"), [("data", {"data": 2}), ("zero3*tensor", {"data": 2, "tensor": 2})]
)
def test_attention_in_a_rank_program(plan: str, mesh: dict[str, int]) -> None:
    """Forward and backward are kernels, of the batch that a rank has."""
    torch.manual_seed(0)
    model = _Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch: Any = {"input": torch.randn(2, 16, 8)}
    capture = capture_step(
        model, optimizer, batch, loss=lambda out, _: out.square().mean(), context=new_context()
    )
    compiled = compile_capture(capture, make_mesh(mesh, 1), plan)
    module = compiled.rank_module
    KernFuse().run(module)
    module.operation.verify()
    text = str(module)
    assert text.count('"kern.attention"') == text.count('"kern.attention_backward"') == 1
    proof = prove_step(compiled.global_module, module, example_inputs(capture, optimizer, batch), steps=2)
    assert proof.passed, proof.render()


class _Routed(nn.Module):
    """Rows are scaled by the expert of the larger score, whose weights are taken by its index."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(32, 4)
        self.experts = nn.Parameter(torch.randn(4, 32, 64))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        score, chosen = self.router(input).softmax(-1).max(-1)
        return (input.unsqueeze(2) * self.experts[chosen]).sum(1) * score.unsqueeze(-1)


def test_gradients_beside_the_flag_of_a_bounds_check_keep_their_layout() -> None:
    """The largest wrong index is a result without a layout; the gradient beside it is compared."""
    torch.manual_seed(0)
    model = _Routed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch: Any = {"input": torch.randn(8, 32)}
    capture = capture_step(
        model, optimizer, batch, loss=lambda out, _: out.square().mean(), context=new_context()
    )
    compiled = compile_capture(capture, make_mesh({"data": 2, "tensor": 2}, 1), "data*tensor")
    module = compiled.rank_module
    KernFuse().run(module)
    assert '"kern.scatter_add"' in str(module)
    proof = prove_step(compiled.global_module, module, example_inputs(capture, optimizer, batch), steps=2)
    assert proof.passed, proof.render()
    assert "grad:experts" in {f"{row.role}:{row.name}".removeprefix("observed:") for row in proof.exact.rows}


def test_a_list_that_two_calls_read_stays_ahead_of_both() -> None:
    model = _Block()
    optimizer = torch.optim.AdamW(model.parameters())
    capture = capture_step(
        model, optimizer, {"input": torch.randn(8, 8)}, loss=lambda out, _: out.sum(), context=new_context()
    )
    module = compile_capture(capture, make_mesh({"data": 2}, 1), "data").rank_module
    run(module, build("cse"))
    (function,) = program_functions(module)
    ops = [op.operation for op in function.regions[0].blocks[0].operations]
    draws = [op for op in ops if op.name == "torch.operator" and target_name(op) == "shardc.uniform"]
    lists = {op.operands[3] for op in draws}
    assert len(draws) == 2 and len(lists) == 1
    fuse_module(module, exclude=frozenset(op.results[0] for op in draws))
    module.operation.verify()
