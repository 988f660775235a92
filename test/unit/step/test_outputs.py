"""Outputs of a step besides its loss, against eager, and on meshes by the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.artefact.manifest import build_manifest
from shardc.backends.eager.proof import compare
from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.frontend import TraceFailed
from shardc.diagnostics.outputs import OutputNotFound, OutputNotTensor
from shardc.diagnostics.passes.pipeline import ScheduleNotYet
from shardc.dialects.pipe.rank_function import rank_functions
from shardc.options.results import Results
from shardc.passes.pipeline.stages.step_program import keys_of
from shardc.runtime.outputs import StepResult
from shardc.runtime.step import TrainStep
from shardc.step.compile_step import CompiledStep

WANTED: dict[str, Any] = {
    "logits": "logits",
    "second": "hidden.1",
    "accuracy": lambda output, batch: (output["logits"].argmax(-1) == batch["y"]).double().mean(),
    "norm": "grad_norm",
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.dropout = nn.Linear(6, 16), nn.Linear(16, 4), nn.Dropout(0.5)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        hidden = self.up(x)
        logits = self.down(hidden.relu())
        return {"loss": nn.functional.cross_entropy(logits, y), "logits": logits, "hidden": (x, hidden)}


def new_model() -> Net:
    torch.manual_seed(0)
    return Net().double()


def batch(number: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    return {"x": x, "y": torch.randint(4, (8,), generator=generator)}


def compiled(outputs: Any = WANTED, model: nn.Module | None = None, **options: Any) -> CompiledStep:
    model = new_model() if model is None else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    given = {"mesh": {"data": 1}, "fuse": False, "outputs": outputs, **options}
    return shardc.compile_step(model, optimizer, batch(), **given)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_on_one_device_they_are_eagers(fuse: bool, clip: float | None) -> None:
    ours, theirs = new_model(), new_model()
    step = compiled(model=ours, fuse=fuse, clip_grad_norm=clip)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.1)
    kept: list[tuple[StepResult, dict[str, Tensor]]] = []
    for number in range(3):
        optimizer.zero_grad()
        output = theirs(**batch(number))
        output["loss"].backward()
        wanted = {name: what(output, batch(number)) for name, what in WANTED.items() if callable(what)}
        wanted |= {"logits": output["logits"].detach(), "second": output["hidden"][1].detach()}
        wanted["norm"] = nn.utils.clip_grad_norm_(theirs.parameters(), clip or float("inf"))
        optimizer.step()
        loss, found = made = step(batch(number))
        torch.testing.assert_close(loss, output["loss"].detach())
        assert list(found) == list(WANTED) and not any(value.requires_grad for value in found.values())
        kept.append((made, wanted))
    for made, wanted in kept:  # later steps leave what earlier ones returned as it is
        torch.testing.assert_close(dict(made.outputs), {name: wanted[name] for name in WANTED})
    for name, value in theirs.named_parameters():
        torch.testing.assert_close(ours.get_parameter(name), value)


MESHES: dict[str, dict[str, Any]] = {
    "tensor": {"mesh": {"data": 2, "tensor": 2}, "plan": "zero3*tensor", "clip_grad_norm": 0.1},
    "micro-batches": {"mesh": {"data": 2}, "micro_batches": 2},
    "odd": {"mesh": {"data": 3}},
}


@pytest.mark.parametrize("name", MESHES)
def test_the_oracle_proves_each_on_a_mesh(name: str) -> None:
    step = compiled(**MESHES[name])
    proof = step.check()
    assert proof.passed, proof.render()
    seen = {row.name for row in proof.exact.rows if row.role == "output"}
    assert seen == WANTED.keys(), "the proof compares outputs, too"


def test_rows_stay_where_they_are_made_and_numbers_are_reduced() -> None:
    step = compiled(**MESHES["micro-batches"])
    results = build_manifest(step.compiled.program, step._planned(), "")["results"]
    dims = {entry["name"]: entry["sharding"]["dims"] for entry in results if entry["role"] == "output"}
    rows = [[["data", 1, 2]], []]
    assert dims == {"logits": rows, "second": rows, "accuracy": [], "norm": []}


def test_the_oracle_sees_a_wrong_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient norm of terms that are not reduced over the ranks is told from the right one."""
    step = compiled({"norm": "grad_norm"}, mesh={"data": 2}, plan="zero3")
    assert step.check().passed

    real = compare._Program._value

    def doubled(self: Any, port: Any, blocks: list[Tensor], copies: Any) -> Any:
        changed = self.is_ranked and port.role == "output"
        return real(self, port, [block * 1.001 for block in blocks] if changed else blocks, copies)

    monkeypatch.setattr(compare._Program, "_value", doubled)
    assert not step.check().passed


PIPELINES: dict[str, dict[str, Any]] = {
    "1f1b": {"mesh": {"pipe": 2}, "plan": "pipeline"},
    "data": {"mesh": {"pipe": 2, "data": 2}, "plan": "pipeline*data"},
    "chimera": {"mesh": {"pipe": 2}, "plan": "pipeline", "schedule": "chimera"},
    "zb-h1": {"mesh": {"pipe": 2}, "plan": "pipeline", "schedule": "zb-h1"},
    "recompute": {"mesh": {"pipe": 2}, "plan": "pipeline", "recompute": "full"},
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PIPELINES)
def test_all_ranks_of_a_pipeline_have_numbers_and_rows(name: str) -> None:
    step = compiled(micro_batches=4, **PIPELINES[name])
    proof = step.check(steps=1)
    assert proof.passed, proof.render()
    assert {row.name for row in proof.exact.rows if row.role == "output"} == WANTED.keys()
    for function in rank_functions(step.compiled.program):
        assert {key for key in keys_of(function, "res_attrs") if key[0] == "output"} == {
            ("output", name) for name in WANTED
        }


def test_rows_of_old_weights_are_refused_by_name() -> None:
    given = {"mesh": {"pipe": 2}, "plan": "pipeline", "schedule": "pipedream", "stale_weights": True}
    with pytest.raises(ScheduleNotYet, match="it keeps old weights, and an output has rows") as caught:
        compiled(["logits"], micro_batches=4, **given)
    assert f"at: {__file__}:" in str(caught.value)


def test_an_output_that_is_not_there_is_named_with_the_line_and_the_nearest() -> None:
    with pytest.raises(OutputNotFound, match="asks for 'logit'") as caught:
        compiled(["logit"])
    said = str(caught.value)
    assert f"at: {__file__}:" in said and "it has loss, logits, hidden" in said and "'logits'" in said
    with pytest.raises(OutputNotFound, match=r"asks for 'hidden\.2'") as caught:
        compiled(["hidden.2"])
    assert "it has 0, 1" in str(caught.value)


def test_an_output_that_is_no_tensor_is_named_with_the_line_of_its_function() -> None:
    def size(output: Any, batch: Any) -> int:
        return len(batch["x"])

    with pytest.raises(OutputNotTensor, match="'size' is a int, not a tensor") as caught:
        compiled({"size": size})
    assert f"at: {__file__}:{size.__code__.co_firstlineno}" in str(caught.value)
    with pytest.raises(OutputNotTensor, match="'hidden' is a tuple"):
        compiled(["hidden"])


def test_a_function_that_raises_is_named_with_its_line() -> None:
    def broken(output: Any, batch: Any) -> Tensor:
        return output["logits"] + batch["z"]

    with pytest.raises(TraceFailed, match="KeyError: 'z'") as caught:
        compiled({"broken": broken})
    assert f"at: {__file__}:{broken.__code__.co_firstlineno + 1}" in str(caught.value)


@pytest.mark.parametrize("value", ["logits", 3, [3], {"a": 3}, {"": "logits"}])
def test_what_is_no_list_of_outputs_is_refused(value: Any) -> None:
    with pytest.raises(BadArgument, match=r"outputs is .* not a list of names, or a mapping"):
        compiled(value)


def test_a_group_a_mapping_and_names_are_one() -> None:
    assert Results(["logits"]) == Results({"logits": "logits"}) == Results(("logits",))  # type: ignore[arg-type]


def test_a_parameter_as_an_output_is_its_value_before_the_step() -> None:
    model = new_model()
    before = model.up.bias.detach().clone()
    result = compiled({"bias": lambda output, _: model.up.bias}, model=model)(batch())
    assert torch.equal(result.outputs["bias"], before) and not torch.equal(model.up.bias, before)


def test_an_artefact_returns_them(tmp_path: Path) -> None:
    step = compiled()
    step.save(tmp_path / "out")
    loss, outputs = TrainStep.load(tmp_path / "out").step(batch())
    wanted = step(batch())
    torch.testing.assert_close((loss, outputs), (wanted.loss, wanted.outputs))
