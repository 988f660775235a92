"""Eight architectures on four meshes: three steps of the rank program against eager training on one device, to 1e-9."""

from __future__ import annotations

import pytest
from models import TRAININGS
from training import captured, check_equal, trained

MESHES = {
    "data2": ({"data": 2}, "data"),
    "tensor2": ({"tensor": 2}, "tensor"),
    "data2-tensor2": ({"data": 2, "tensor": 2}, "data*tensor"),
    "zero3-4": ({"data": 4}, "zero3"),
}


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", TRAININGS)
def test_equals_eager_training(name: str, mesh: str) -> None:
    step = captured(name)
    compiled = step.compile(*MESHES[mesh])
    replicated = [remark.render() for remark in compiled.remarks if remark.name == "ReplicatedOp"]
    assert not replicated
    check_equal(step, compiled, TRAININGS[name], trained(name))
