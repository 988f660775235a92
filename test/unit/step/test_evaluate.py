"""``step.evaluate``, ``step.forward`` and ``compile_forward``, against eager, and on meshes by the oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.backends.torch.description import describe_program
from shardc.diagnostics.api import BadArgument, TooManyShapes
from shardc.step.compile_step import CompiledStep


class Net(nn.Module):
    """Dropout, batch norm, and an output with what is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = self.norm(self.up(x)).relu()
        return {"logits": self.down(self.dropout(hidden)), "hidden": (hidden, 7), "past": None}


def new_model() -> Net:
    torch.manual_seed(0)
    return Net().double()


def batch(number: int = 0, rows: int = 8) -> dict[str, Tensor]:
    return {"x": torch.randn(rows, 6, generator=torch.Generator().manual_seed(number), dtype=torch.float64)}


def loss_of(output: Any, _: object) -> Tensor:
    return output["logits"].square().mean()


def largest(output: Any, _: object) -> Tensor:
    return output["logits"].amax()


def compiled(model: nn.Module, **options: Any) -> CompiledStep:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"mesh": {"data": 1}, "fuse": False, "loss": loss_of, **options}
    return shardc.compile_step(model, optimizer, batch(), **given)


@pytest.mark.filterwarnings("ignore:.ForwardCompiled")
@pytest.mark.parametrize("fuse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_they_are_eagers_in_eval_mode_and_change_nothing(fuse: bool) -> None:
    model = new_model()
    step = compiled(model, fuse=fuse, outputs={"largest": largest, "norm": "grad_norm"})
    for number in range(2):
        step(batch(number))
        before = {name: value.clone() for name, value in model.state_dict().items()}
        theirs = new_model()
        theirs.load_state_dict(before)
        for rows in (8, 5):
            wanted = theirs.eval()(**batch(9, rows))
            loss, outputs = step.evaluate(batch(9, rows))
            torch.testing.assert_close(loss, loss_of(wanted, None).detach())
            torch.testing.assert_close(outputs, {"largest": largest(wanted, None).detach()})
            found: Any = step.forward(batch(9, rows))
            assert found["past"] is None and found["hidden"][1] == 7
            torch.testing.assert_close(found["logits"], wanted["logits"].detach())
            torch.testing.assert_close(found["hidden"][0], wanted["hidden"][0].detach())
        torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
        assert model.training and step.steps_done == number + 1


def test_the_first_use_warns_of_the_compile_and_later_ones_do_not(recwarn: pytest.WarningsRecorder) -> None:
    step = compiled(new_model())
    for _ in range(2):
        assert step.evaluate(batch()).shape == ()
    said = [str(w.message) for w in recwarn if "ForwardCompiled" in str(w.message)]
    assert len(said) == 1 and "step.evaluate" in said[0]


PLANS: dict[str, dict[str, Any]] = {
    "tensor": {"mesh": {"data": 2, "tensor": 2}, "plan": "zero3*tensor"},
    "micro-batches": {"mesh": {"data": 2}, "micro_batches": 2},
}


@pytest.mark.parametrize("name", PLANS)
def test_the_oracle_proves_a_forward(name: str) -> None:
    proof = shardc.compile_forward(new_model(), batch(), fuse=False, **PLANS[name]).check()
    assert proof.passed, proof.render()
    seen = {row.name for row in proof.exact.rows}
    assert seen == {"output['logits']", "output['hidden'][0]"}


@pytest.mark.parametrize("what", ["evaluate", "forward"])
def test_the_oracle_proves_programs_over_a_steps_layouts(what: str) -> None:
    step = compiled(new_model(), **PLANS["tensor"])
    made = step._forwards.program(step.compiled, batch(), what)
    proof = made.check()
    assert proof.passed, proof.render()
    mine, its = (
        {e["name"]: e["sharding"] for e in describe_program(of.compiled.rank_module)["arguments"]}
        for of in (made, step)
    )
    held = dict(new_model().state_dict())
    assert {name: mine[name] for name in held} == {name: its[name] for name in held}


def test_a_forward_of_a_model_and_of_an_exported_program_are_eagers() -> None:
    model = new_model()
    wanted = model.eval()(**batch(3))
    exported = torch.export.export(model, (), batch())
    for source in (model, exported):
        forward = shardc.compile_forward(source, batch(), mesh={"data": 1}, fuse=False)
        found: Any = forward(batch(3))
        torch.testing.assert_close(found["logits"], wanted["logits"].detach())


def test_parameters_move_from_a_step_to_a_forward_and_back() -> None:
    model, other = new_model(), new_model()
    step = compiled(model)
    forward = shardc.compile_forward(other, batch(), mesh={"data": 1}, fuse=False)
    for number in range(2):
        step(batch(number))
        forward.take_from(step)
        theirs = new_model()
        theirs.load_state_dict(model.state_dict())
        found: Any = forward(batch(7))
        torch.testing.assert_close(found["logits"], theirs.eval()(**batch(7))["logits"].detach())
    forward.take_from(other)
    step.take_from(forward)
    torch.testing.assert_close(dict(model.state_dict()), dict(other.state_dict()))
    with pytest.raises(BadArgument, match="not a compiled step, a compiled forward or a model"):
        forward.take_from(3)


@pytest.mark.filterwarnings("ignore:.ForwardCompiled")
def test_forms_of_batches_have_a_limit_and_come_in_buckets() -> None:
    step = compiled(new_model(), shapes_limit=2)
    for rows in (8, 5, 8):
        step.evaluate(batch(0, rows))
        step.forward(batch(0, rows))
    for call in (step.evaluate, step.forward):
        with pytest.raises(
            TooManyShapes, match=r"(?s)x float64 \[4, 6\].*needs program number 3, but shapes_limit is 2"
        ) as raised:
            call(batch(0, 4))
        assert raised.value.where is not None and "test_evaluate.py:" in raised.value.where
    rows_of: list[int] = []

    def whole(given: dict[str, Tensor]) -> dict[str, Tensor]:
        rows_of.append(len(given["x"]))
        return {"x": given["x"][:4]}

    bucketed = compiled(new_model(), shapes_limit=1, bucket=whole)
    losses = [bucketed.evaluate(batch(0, rows)) for rows in (8, 6, 4)]
    assert rows_of == [8, 8, 6, 4]  # the example first
    torch.testing.assert_close(losses[0], bucketed.evaluate({"x": batch(0, 8)["x"][:4]}))
