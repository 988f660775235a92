"""Eight architectures on four meshes: three steps of the rank program against eager training, to 1e-9."""

from __future__ import annotations

import pytest
from models import TRAININGS
from training import captured, check_equal, trained

from shardc.backends.eager.program import find_step

MESHES = {
    "data2": ({"data": 2}, "data"),
    "tensor2": ({"tensor": 2}, "tensor"),
    "data2-tensor2": ({"data": 2, "tensor": 2}, "data*tensor"),
    "zero3-4": ({"data": 4}, "zero3"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", TRAININGS)
def test_equals_eager_training(name: str, mesh: str) -> None:
    step = captured(name)
    compiled = step.compile(*MESHES[mesh])
    replicated = [remark.render() for remark in compiled.remarks if remark.name == "ReplicatedOp"]
    assert not replicated
    check_equal(step, compiled, TRAININGS[name], trained(name))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_lost_reduction_is_noticed(phase: str) -> None:
    """The comparison is not blind: without one of its collectives the program is found wrong."""
    step = captured("vit")
    compiled = step.compile({"data": 2, "tensor": 2}, "data*tensor")
    function = find_step(compiled.rank_module)
    assert function is not None
    ops = [op.operation for op in function.regions[0].blocks[0].operations]
    reduction = next(
        op for op in ops if op.name == "dist.all_reduce" and op.attributes["dist.phase"].value == phase
    )
    reduction.results[0].replace_all_uses_with(reduction.operands[0])
    with pytest.raises(AssertionError, match="differ"):
        check_equal(step, compiled, TRAININGS["vit"], trained("vit"))
