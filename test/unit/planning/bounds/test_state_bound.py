"""Lower bounds of a plan's memory: never above what a compiled plan has as state."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from planned import write_config

from shardc.frontend.step.spec import TensorSpec
from shardc.planning.bounds.state import LeastState
from shardc.planning.candidates import Candidate, plans_of
from shardc.planning.pricer import Pricer
from shardc.planning.question import Sizes, read_config

MESH = {"pipe": 2, "data": 4, "tensor": 8}
F32 = torch.float32


@pytest.mark.parametrize(
    ("plan", "parameters", "state"),
    [
        ("data", 2 * 8, 2 * 8),
        ("zero1*tensor", 2 * 8, 64),
        ("zero2*sequence*pipeline", 2 * 8, 64),
        ("zero3*tensor*pipeline", 64, 64),
        ("plan.json", 64, 64),
    ],
)
def test_devices_among_which_state_is_shared(plan: str, parameters: int, state: int) -> None:
    found = LeastState(6400.0, 12800.0).on_device(Candidate(MESH, plan))
    assert found == 6400 / parameters + 12800 / state


def test_the_least_state_of_a_byte() -> None:
    arguments = [
        TensorSpec("a", "param", (4,), F32),
        TensorSpec("a/m", "opt_state", (4,), F32),
        TensorSpec("a/v", "opt_state", (4,), F32),
        TensorSpec("b", "param", (8,), F32),
        TensorSpec("b/m", "opt_state", (8,), F32),
    ]
    assert LeastState.of(arguments, 1000.0) == LeastState(1000.0, 1000.0)


@pytest.mark.slow
def test_no_plan_has_less_state(tmp_path: Path) -> None:
    config = write_config(tmp_path, num_hidden_layers=7)
    pricer = Pricer(read_config(config, Sizes(8, 32), torch.bfloat16))
    for mesh in ({"data": 4}, {"data": 2, "tensor": 2}, {"pipe": 2, "data": 2}):
        for candidate in plans_of(mesh, 8):
            least = pricer.least_state_bytes(candidate)
            assert 0 < least <= pricer.price(candidate).fullest.state_bytes, candidate.text
