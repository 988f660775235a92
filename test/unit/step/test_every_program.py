"""``step.check()`` proves each program that a step has compiled; ``verify=True`` each new one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import shardc
from shardc.step.compile_step import CompiledStep
from shardc.step.once import Request
from shardc.step.shard import Compiled

pytestmark = pytest.mark.filterwarnings("ignore:ForwardCompiled|ShapeCompiled|ModeCompiled")


def rows(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, 4, generator=generator), torch.randint(0, 3, (count,), generator=generator)


def compiled(**options: Any) -> CompiledStep:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    given = {"mesh": {"data": 1}, "loss": F.cross_entropy, "fuse": False, **options}
    return shardc.compile_step(model, optimizer, rows(4), **given)


def without_tanh(compiled: Compiled) -> Compiled:
    """The program made wrong: its activation is left out."""
    ops = [op for op in compiled.program.body.operations if op.operation.name == "func.func"]
    found = [inner for op in ops for inner in op.operation.regions[0].blocks[0].operations]
    (tanh,) = [op.operation for op in found if "aten.tanh" in str(op) and "backward" not in str(op)]
    tanh.results[0].replace_all_uses_with(tanh.operands[0])
    return compiled


def use_all(step: CompiledStep) -> None:
    step(rows(4))
    step(rows(3))
    step.evaluate(rows(4))
    step.forward(rows(2))
    step._model.eval()
    step(rows(4))


NAMES = [
    "batch 0 float32 [3, 4], 1 int64 [3]",
    "another mode, number 1",
    "step.evaluate for batch 0 float32 [4, 4], 1 int64 [4]",
    "step.forward for batch 0 float32 [2, 4], 1 int64 [2]",
]


def test_a_check_proves_all_that_was_compiled_and_says_what() -> None:
    step = compiled()
    assert step.check().others == ()
    use_all(step)
    proof = step.check()
    assert proof.passed, proof.render()
    assert [name for name, _ in proof.others] == NAMES
    assert all(f"the program of {name}" in proof.render() for name in NAMES)


@pytest.mark.parametrize("wrong", range(len(NAMES)))
def test_a_wrong_program_is_found_whichever_it_is(wrong: int) -> None:
    step = compiled()
    use_all(step)
    made = [*step._others.made.values(), *step._modes, *step._forwards.made.values()]
    without_tanh(made[wrong].compiled)
    proof = step.check()
    assert not proof.passed
    assert [name for name, other in proof.others if not other.passed] == [NAMES[wrong]]


@pytest.mark.parametrize("use", ["shape", "evaluate", "forward", "mode"])
def test_with_verify_a_wrong_program_never_runs(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = compiled(verify=True)
    step(rows(4))
    before = {name: value.clone() for name, value in step._model.state_dict().items()}
    made = Request.compiled
    monkeypatch.setattr(Request, "compiled", lambda request: without_tanh(made(request)))
    if use == "mode":
        step._model.eval()
    calls = {"shape": step, "mode": step, "evaluate": step.evaluate, "forward": step.forward}
    with pytest.raises(shardc.ShardcError, match=r"NOT equal|NotEqual"):
        calls[use](rows(3 if use == "shape" else 4))
    for name, value in step._model.state_dict().items():
        assert torch.equal(value, before[name])
