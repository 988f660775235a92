"""Chains of steps for layouts that iterations of a loop cut, too."""

from __future__ import annotations

from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.dialects.dist.reshard_steps import AllGather, ReduceScatter
from shardc.dialects.dist.sharding import Sharding
from shardc.passes.partition.reshard_lower import plan_steps

MESH = Mesh((MeshAxis("data", 2), MeshAxis("tensor", 2), MeshAxis("micro", 2, "time")))
DATA, TENSOR, MICRO = (MESH.whole(name) for name in ("data", "tensor", "micro"))


def test_a_chain_in_a_loop_fits_what_an_iteration_has() -> None:
    """An iteration has one of the two rows: no step may cut rows, as the cheapest chain for both would."""
    source = Sharding(((MICRO,), (DATA,))).with_partial((("sum", TENSOR),))
    target = Sharding(((MICRO,), (TENSOR,)))
    chain = [AllGather(1, (DATA,)), ReduceScatter(1, (TENSOR,), "sum")]
    assert plan_steps(source, target, (2, 2), MESH) == chain
