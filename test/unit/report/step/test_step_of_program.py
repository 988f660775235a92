"""Programs of level 3 as work: complete, with one pass per kernel; their time on clusters."""

from collections import Counter

import pytest
import torch
from torch import nn
from torch_mlir import ir

import shardc
from shardc.cost.cluster.names import find_cluster
from shardc.cost.step.work import Item, StepWork
from shardc.diagnostics.cluster import MeshDoesNotFit
from shardc.dialects.context import new_context
from shardc.report.device_work import device_work
from shardc.report.step.read_step import read_step
from shardc.report.step.step_time import step_time
from shardc.report.traffic import transfers
from shardc.step.compile_step import CompiledStep

HIDDEN, BATCH = 64, 32


def compiled(mesh: dict[str, int], plan: str, **options: object) -> CompiledStep:
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.GELU()) for _ in range(4))
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = (torch.randn(BATCH, HIDDEN),)
    return shardc.compile_step(
        model,
        optimizer,
        batch,
        loss=lambda y, _: y.square().mean(),
        mesh=mesh,
        plan=plan,
        fuse=False,
        **options,
    )


def all_items(work: StepWork) -> list[tuple[Item, int]]:
    return [(item, section.times) for section in work.ranks[0] for item in section.items]


@pytest.mark.parametrize("plan", ["data*tensor", "zero3*tensor"])
def test_products_and_collectives_are_those_of_the_program(plan: str) -> None:
    module = compiled({"data": 2, "tensor": 2}, plan).compiled.rank_module
    items = all_items(read_step(module))
    assert sum(item.flops for item, _ in items) == sum(w.flops for w in device_work(module, module).own)
    found = Counter((item.collective, item.moved_bytes) for item, _ in items if item.kind == "collective")
    assert found == Counter((t.kind, t.type.size_bytes) for t in transfers(module))


def test_a_loop_over_micro_batches_counts_its_turns() -> None:
    once, loop = (
        compiled({"data": 2}, "data", **more).compiled.rank_module for more in ({}, {"micro_batches": 4})
    )
    flops = [
        sum(times * item.flops for item, times in all_items(read_step(module))) for module in (once, loop)
    ]
    assert flops[0] == flops[1] > 0
    assert {times for item, times in all_items(read_step(loop)) if item.flops} == {4}


def test_items_need_only_what_stands_before_them() -> None:
    work = read_step(compiled({"data": 2, "tensor": 2}, "zero3*tensor").compiled.rank_module)
    for section in work.ranks[0]:
        for number, item in enumerate(section.items):
            assert all(needed < number for needed in item.needs)


def test_a_pipeline_has_the_work_of_each_stage_and_rank() -> None:
    step = compiled({"pipe": 2, "data": 2}, "pipeline*data", micro_batches=4, recompute="full")
    work = read_step(step.compiled.pipeline_module)
    assert len(work.stages) == len(work.ranks) == 2
    assert {"F", "B", "REDUCE_GRAD"} <= work.stages[0].actions.keys()
    assert work.stages[0].sent_bytes == BATCH // 8 * HIDDEN * 4
    assert work.stages[1].sent_bytes == 0
    assert any(item.phase == "recompute" for item in work.stages[0].actions["B"])
    assert any(item.axes[0].name == "data" for item in work.stages[0].actions["REDUCE_GRAD"] if item.axes)


CHAIN = """
func.func @step(%x: !torch.vtensor<[1024,256],f32>) -> (!torch.vtensor<[1024],f32>) {
  %one = torch.constant.int 1
  %none = torch.constant.none
  %no = torch.constant.bool false
  %dims = torch.prim.ListConstruct %one : (!torch.int) -> !torch.list<int>
  %a = torch.aten.tanh %x : !torch.vtensor<[1024,256],f32> -> !torch.vtensor<[1024,256],f32>
  %b = torch.aten.exp %a : !torch.vtensor<[1024,256],f32> -> !torch.vtensor<[1024,256],f32>
  %c = torch.aten.mul.Tensor %a, %b : !torch.vtensor<[1024,256],f32>, !torch.vtensor<[1024,256],f32>
    -> !torch.vtensor<[1024,256],f32>
  %d = torch.aten.sum.dim_IntList %c, %dims, %no, %none : !torch.vtensor<[1024,256],f32>, !torch.list<int>,
    !torch.bool, !torch.none -> !torch.vtensor<[1024],f32>
  %e = torch.aten.exp %d : !torch.vtensor<[1024],f32> -> !torch.vtensor<[1024],f32>
  return %e : !torch.vtensor<[1024],f32>
}
"""


def test_a_chain_of_pointwise_ops_is_one_pass_with_the_reduction_that_ends_it() -> None:
    with new_context(), ir.Location.unknown():
        ((section,),) = read_step(ir.Module.parse(CHAIN)).ranks
    chain, rest = section.items
    assert (chain.calls, chain.moved_bytes, chain.is_plain) == (4, 4 * (1024 * 256 + 1024), False)
    assert (rest.calls, rest.moved_bytes, rest.is_plain) == (1, 4 * 2 * 1024, True)
    assert rest.needs == (0,)


VIEWS = """
func.func @step(%x: !torch.vtensor<[64,32],f32>, %w: !torch.vtensor<[64,32],f32>)
    -> (!torch.vtensor<[64,64],f32>, !torch.vtensor<[64,32],f32>) {
  %y = torch.aten.relu %x : !torch.vtensor<[64,32],f32> -> !torch.vtensor<[64,32],f32>
  %t = torch.aten.t %w : !torch.vtensor<[64,32],f32> -> !torch.vtensor<[32,64],f32>
  %p = torch.aten.mm %y, %t : !torch.vtensor<[64,32],f32>, !torch.vtensor<[32,64],f32>
    -> !torch.vtensor<[64,64],f32>
  %z = torch.aten.relu %y : !torch.vtensor<[64,32],f32> -> !torch.vtensor<[64,32],f32>
  return %p, %z : !torch.vtensor<[64,64],f32>, !torch.vtensor<[64,32],f32>
}
"""


def test_views_cost_nothing_and_values_are_written_where_others_read_them() -> None:
    with new_context(), ir.Location.unknown():
        ((section,),) = read_step(ir.Module.parse(VIEWS)).ranks
    both, product = section.items
    size = 64 * 32 * 4
    assert (both.calls, both.moved_bytes) == (2, 3 * size)  # reads x, writes y for the product, and z
    assert product.product is not None
    assert (product.product.m, product.product.n, product.product.k) == (64, 64, 32)
    assert (product.needs, product.moved_bytes) == ((0,), 2 * size + 64 * 64 * 4)


def test_a_faster_cluster_takes_less_time() -> None:
    module = compiled({"data": 2, "tensor": 2}, "zero3*tensor").compiled.rank_module
    times = [step_time(module, find_cluster(name)).seconds for name in ("h100-8", "a100-80-8", "cpu-8")]
    assert times == sorted(times)
    assert times[0] > 0


def test_axes_across_nodes_are_waited_for_longer() -> None:
    module = compiled({"data": 2, "tensor": 2}, "data*tensor").compiled.rank_module
    node, nodes = (step_time(module, find_cluster(name)) for name in ("h100-4", "h100-2x2"))
    assert nodes.causes["data"] > node.causes["data"] > 0
    assert sum(nodes.causes.values()) == pytest.approx(nodes.seconds)


def test_a_pipeline_has_a_bubble() -> None:
    step = compiled({"pipe": 2, "data": 2}, "pipeline*data", micro_batches=4)
    time = step_time(step.compiled.pipeline_module, find_cluster("h100-4"))
    assert 0 < time.causes["bubble"] < time.seconds
    assert sum(time.causes.values()) == pytest.approx(time.seconds)


def test_a_mesh_that_does_not_fit_is_refused() -> None:
    module = compiled({"data": 4}, "data").compiled.rank_module
    with pytest.raises(MeshDoesNotFit):
        step_time(module, find_cluster("h100-2"))
