"""Chains of reshard steps for layouts that a time axis splits, too."""

from __future__ import annotations

import pytest
import torch
from torch_mlir import ir

from shardc.backends.eager.collectives import gather, scatter
from shardc.backends.eager.interpreter import run as execute
from shardc.backends.eager.program import find_step
from shardc.backends.eager.proof.signature import read_arguments, read_results
from shardc.dialects.context import new_context
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh, MeshAxis, read_mesh
from shardc.dialects.dist.reshard_steps import AllGather, AllToAll, Permute, ReduceScatter, Slice
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.manager.pass_pipelines import build, run
from shardc.passes.partition.reshard_lower import StackLoop, permuted, plan_steps

MESH = Mesh((MeshAxis("data", 2), MeshAxis("tensor", 2), MeshAxis("micro", 2, "time")))
DATA, TENSOR, MICRO = (MESH.whole(name) for name in ("data", "tensor", "micro"))


def test_a_chain_in_a_loop_fits_what_an_iteration_has() -> None:
    """An iteration has one of the two rows: no step may cut rows, as the cheapest chain for both would."""
    source = Sharding(((MICRO,), (DATA,))).with_partial((("sum", TENSOR),))
    target = Sharding(((MICRO,), (TENSOR,)))
    chain = [AllGather(1, (DATA,)), ReduceScatter(1, (TENSOR,), "sum")]
    assert plan_steps(source, target, (2, 2), MESH) == chain


def test_what_is_inside_of_the_loops_axis_is_traded_in_the_loop() -> None:
    """Batch and sequence of one dim: devices cut the sequence, inside of the micro-batches."""
    source, target = Sharding(((DATA, MICRO, TENSOR), ())), Sharding(((DATA, MICRO), (TENSOR,)))
    assert plan_steps(source, target, (8, 8), MESH) == [AllToAll(1, 0, (TENSOR,))]


def test_a_value_leaves_and_enters_a_loop_with_its_axis_innermost() -> None:
    inner, outer = Sharding(((DATA, MICRO, TENSOR),)), Sharding(((DATA, TENSOR),))
    leaving = [AllGather(0, (TENSOR,)), StackLoop(0, (MICRO,)), Slice(0, (TENSOR,))]
    assert plan_steps(inner, outer, (8,), MESH) == leaving
    entering = [AllGather(0, (TENSOR,)), Slice(0, (MICRO,)), Slice(0, (TENSOR,))]
    assert plan_steps(outer, inner, (8,), MESH) == entering


def test_a_permutation_within_a_loop_leaves_the_loops_axis() -> None:
    """Heads that lie the other way round over devices, of each micro-batch."""
    mesh = Mesh((MeshAxis("tensor", 4), MeshAxis("micro", 2, "time")))
    micro, outer, inner = mesh.whole("micro"), Axis("tensor", 1, 2), Axis("tensor", 2, 2)
    source, target = Sharding(((micro,), (outer, inner))), Sharding(((micro,), (inner, outer)))
    (step,) = plan_steps(source, target, (8, 8), mesh)
    assert isinstance(step, Permute) and micro not in step.axes
    assert permuted(step, source, mesh) == target


def test_what_is_cut_outside_of_the_loops_axis_stays_outside() -> None:
    mesh = Mesh((MeshAxis("data", 2), MeshAxis("tensor", 4), MeshAxis("micro", 2, "time")))
    data, micro = mesh.whole("data"), mesh.whole("micro")
    outer, inner = Axis("tensor", 1, 2), Axis("tensor", 2, 2)
    source = Sharding(((data, micro, outer), (inner,)))
    target = Sharding(((data, micro, inner), (outer,)))
    (step,) = plan_steps(source, target, (8, 8), mesh)
    assert isinstance(step, Permute)
    assert permuted(step, source, mesh) == target


STEP = """
"dist.mesh"() {{sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 2, "time"]]}} : () -> ()
func.func @step(%x: !torch.vtensor<[8,16],f32>
    {{dist.role = "input", dist.name = "x", dist.sharding = #dist.sharding<@mesh, [{given}], []>}})
    -> !torch.vtensor<[8,16],f32> {{
  %0 = torch.aten.relu %x : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  %1 = "dist.constraint"(%0) {{sharding = #dist.sharding<@mesh, [{wanted}], []>}}
      : (!torch.vtensor<[8,16],f32>) -> !torch.vtensor<[8,16],f32>
  %2 = torch.aten.exp %1 : !torch.vtensor<[8,16],f32> -> !torch.vtensor<[8,16],f32>
  return %2 : !torch.vtensor<[8,16],f32>
}}
"""
PASSES = "dist-propagate,dist-insert-reshards,verify-level{level=2},dist-partition,verify-level{level=3}"


@pytest.mark.parametrize("wanted", ['["data"], []', '[], ["data"]', "[], []"])
@pytest.mark.parametrize(
    "given", ['["micro"], []', '["micro"], ["data"]', '["micro", "data"], []', '["data", "micro"], []']
)
def test_rows_keep_their_order_where_a_constraint_moves_axes(given: str, wanted: str) -> None:
    """Blocks of one iteration, put together over devices, would be rows in another order."""
    with new_context():
        module = ir.Module.parse(STEP.format(given=given, wanted=wanted))
        run(module, build(PASSES))
        mesh, step = read_mesh(module), find_step(module)
        assert mesh is not None
        codec = ShardingCodec(module.context, mesh)
        (argument,), (result,) = read_arguments(step, codec), read_results(step, codec)
        x = torch.randn(8, 16)
        (found,) = execute(module, [scatter(x, argument.sharding, mesh)])
        assert gather(found, result.sharding, mesh, (8, 16)).equal(x.relu().exp())
