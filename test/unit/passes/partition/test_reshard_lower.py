"""Chains of steps for layouts that iterations of a loop cut, too."""

from __future__ import annotations

import pytest
import torch
from torch_mlir import ir

from shardc.backends.eager.collectives import scatter
from shardc.backends.eager.interpreter import run as execute
from shardc.backends.eager.program import find_step
from shardc.backends.eager.proof.signature import read_arguments
from shardc.dialects.context import new_context
from shardc.dialects.dist.mesh import Mesh, MeshAxis, read_mesh
from shardc.dialects.dist.reshard_steps import AllGather, ReduceScatter
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.manager.pass_pipelines import build, run
from shardc.passes.partition.reshard_lower import plan_steps

MESH = Mesh((MeshAxis("data", 2), MeshAxis("tensor", 2), MeshAxis("micro", 2, "time")))
DATA, TENSOR, MICRO = (MESH.whole(name) for name in ("data", "tensor", "micro"))


def test_a_chain_in_a_loop_fits_what_an_iteration_has() -> None:
    """An iteration has one of the two rows: no step may cut rows, as the cheapest chain for both would."""
    source = Sharding(((MICRO,), (DATA,))).with_partial((("sum", TENSOR),))
    target = Sharding(((MICRO,), (TENSOR,)))
    chain = [AllGather(1, (DATA,)), ReduceScatter(1, (TENSOR,), "sum")]
    assert plan_steps(source, target, (2, 2), MESH) == chain


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


@pytest.mark.parametrize("wanted", ['["data"], []', '[], ["data"]', "[], []"])
@pytest.mark.parametrize("given", ['["micro"], []', '["micro"], ["data"]', '["micro", "data"], []'])
def test_devices_do_not_trade_parts_of_a_dim_that_iterations_cut(given: str, wanted: str) -> None:
    """Blocks of one iteration, put together over devices, would be rows in another order."""
    with new_context():
        module = ir.Module.parse(STEP.format(given=given, wanted=wanted))
        run(module, build("dist-propagate,dist-insert-reshards,dist-partition"))
        mesh = read_mesh(module)
        assert mesh is not None
        (port,) = read_arguments(find_step(module), ShardingCodec(module.context, mesh))
        x = torch.randn(8, 16)
        (found,) = execute(module, [scatter(x, port.sharding, mesh)])
        assert all(torch.equal(value, x.relu().exp()) for value in found)
