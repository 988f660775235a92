"""``per_micro_batch=True``: the program is plain gradient accumulation, on one device and on meshes."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from micro_batch_models import Contrastive, Dropped, Norms, Queue, Router, Warm, accumulated_step, samples
from torch import nn
from torch.distributed.tensor import DTensor

import shardc
from shardc.commands.check import check_artefact
from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.passes.accumulate import (
    BufferFeedsLoss,
    NoBatchDim,
    OneMicroBatch,
    OutputsOfMicroBatches,
    UnevenMicroBatches,
)
from shardc.diagnostics.passes.pipeline import ScheduleNotYet, SeveralLoops
from shardc.step.compile_step import CompiledStep

CLIP = 0.5
BOUND = 1e-9


def compiled(
    model: nn.Module, mesh: dict[str, int], plan: str, micro_batches: int = 4, **options: object
) -> CompiledStep:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    return shardc.compile_step(
        model,
        optimizer,
        samples(model),
        mesh=mesh,
        plan=plan,
        micro_batches=micro_batches,
        per_micro_batch=True,
        fuse=False,
        clip_grad_norm=CLIP,
        **options,
    )


@pytest.mark.parametrize("kind", [Norms, Router, Contrastive])
def test_steps_are_those_of_plain_accumulation(kind: type[nn.Module]) -> None:
    torch.manual_seed(1)
    model = kind().double()
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    step = compiled(model, {"data": 1}, "data")
    for number in range(3):
        batch = {n: t.roll(number, 0) for n, t in samples(model).items()}
        wanted = accumulated_step(plain, optimizer, batch, 4, CLIP)
        assert abs(step(batch).item() - wanted) < BOUND
    found, expected = step.state_dict(), plain.state_dict()
    for name, value in expected.items():
        held = found[name]
        held = held.full_tensor() if isinstance(held, DTensor) else held
        assert torch.allclose(held.double(), value.double(), rtol=0, atol=BOUND), name


def test_the_whole_batch_is_another_function() -> None:
    torch.manual_seed(1)
    model = Norms().double()
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    whole = shardc.compile_step(other, optimizer, samples(model), mesh={"data": 1}, fuse=False)
    assert abs(whole(samples(model)) - compiled(model, {"data": 1}, "data")(samples(model))) > 1e-3


MESHES = {
    "one device": ({"data": 1}, "data", {}),
    "data": ({"data": 2}, "data", {"micro_batches": 2}),
    "zero3": ({"data": 2}, "zero3", {"micro_batches": 2}),
    "1f1b": ({"pipe": 2}, "pipeline", {"schedule": "1f1b"}),
    "gpipe": ({"pipe": 2}, "pipeline", {"schedule": "fill-drain"}),
    "zb-h1": ({"pipe": 2}, "pipeline", {"schedule": "zb-h1"}),
    "recomputing": ({"pipe": 2}, "pipeline", {"recompute": "full"}),
    "pipeline and data": ({"pipe": 2, "data": 2}, "pipeline*data", {"schedule": "zb-h1"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("kind", [Norms, Router, Contrastive, Dropped])
def test_meshes_and_schedules_equal_one_device(kind: type[nn.Module], name: str) -> None:
    mesh, plan, options = MESHES[name]
    proof = compiled(kind().double(), mesh, plan, **options).check()
    assert proof.passed, proof.render()
    assert not proof.exact.unobserved
    assert "changes the mathematics" in proof.render()


@pytest.mark.parametrize("schedule", ["interleaved", "chimera", "zb-v"])
def test_schedules_of_several_stages_a_rank(schedule: str) -> None:
    proof = compiled(Norms().double(), {"pipe": 2}, "pipeline", schedule=schedule).check()
    assert proof.passed, proof.render()


@pytest.mark.slow
def test_kernels_run_the_micro_batches() -> None:
    optimizer = torch.optim.AdamW((model := Norms()).parameters())
    options = {"mesh": {"data": 1}, "micro_batches": 4, "per_micro_batch": True, "target": "cpu"}
    batch = {name: t.float() if t.is_floating_point() else t for name, t in samples(model).items()}
    assert shardc.compile_step(model, optimizer, batch, **options).check().passed


def test_micro_batches_draw_numbers_of_their_own() -> None:
    class Mask(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(64, dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (torch.dropout(x, 0.5, True) * self.weight).sum()

    model = Mask()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    ones = torch.ones(2, 64, dtype=torch.float64)
    options = {"micro_batches": 2, "per_micro_batch": True, "fuse": False}
    shardc.compile_step(model, optimizer, {"x": ones}, mesh={"data": 1}, **options)({"x": ones})
    # Each micro-batch drops an element or doubles it: only where they differ is the mean 1.
    assert set(model.weight.tolist()) == {-0.0, -1.0, -2.0}


def test_the_plan_and_the_program_say_what_changes() -> None:
    step = compiled(Norms().double(), {"pipe": 2}, "pipeline")
    assert "4 micro-batches run as separate programs, which changes the mathematics" in str(
        step.plan.render()
    )


@pytest.mark.slow
def test_a_saved_step_is_proven_equal_to_the_loop(tmp_path: Path) -> None:
    compiled(Norms().double(), {"data": 2}, "zero3", micro_batches=2).save(tmp_path / "out")
    report = check_artefact(tmp_path / "out", 1)
    assert report.passed, report.render()
    assert "the loop that accumulates gradients" in report.render()


def test_a_lone_row_is_seen_whole() -> None:
    class Biased(Norms):
        def forward(self, x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:  # pyright: ignore
            return super().forward(x + bias, y)

    model = Biased().double()
    plain, batch = copy.deepcopy(model), samples(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, plain)]
    bias = torch.full((1, 2, 3, 3), 0.5, dtype=torch.float64)
    options = {"micro_batches": 4, "per_micro_batch": True, "fuse": False}
    step = shardc.compile_step(model, optimizers[0], {**batch, "bias": bias}, mesh={"data": 1}, **options)
    wanted = accumulated_step(plain, optimizers[1], {**batch, "bias": bias.expand(8, 2, 3, 3)}, 4, 1e9)
    assert abs(step({**batch, "bias": bias}).item() - wanted) < BOUND


def test_the_refusal_of_batch_norm_names_the_option() -> None:
    model = Norms().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(SeveralLoops, match="per_micro_batch=True"):
        shardc.compile_step(
            model, optimizer, samples(model), mesh={"pipe": 2}, plan="pipeline", micro_batches=4, fuse=False
        )


def compile_wrongly(batch: dict[str, torch.Tensor], **options: object) -> None:
    model = Norms().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"mesh": {"data": 1}, "micro_batches": 4, "per_micro_batch": True, "fuse": False, **options}
    shardc.compile_step(model, optimizer, batch, **given)


def test_wrong_options_and_batches_are_named() -> None:
    batch = samples(Norms())
    with pytest.raises(OneMicroBatch, match="micro_batches is 1"):
        compile_wrongly(batch, micro_batches=1)
    with pytest.raises(OutputsOfMicroBatches, match="cannot be combined with per_micro_batch"):
        compile_wrongly(batch, outputs=["output"])
    with pytest.raises(BadArgument, match="per_micro_batch"):
        compile_wrongly(batch, per_micro_batch="yes")
    with pytest.raises(UnevenMicroBatches, match="a batch of 8 rows does not divide into 3 micro-batches"):
        compile_wrongly(batch, micro_batches=3)
    with pytest.raises(
        UnevenMicroBatches, match="a micro-batch of 4 rows does not divide over the 3 devices of"
    ):
        compile_wrongly(batch, micro_batches=2, mesh={"data": 3})
    with pytest.raises(NoBatchDim, match="x has 8, y has 8, classes has 5"):
        compile_wrongly({**batch, "classes": torch.ones(5)})


def test_a_counter_that_the_loss_reads_is_refused() -> None:
    with pytest.raises(BufferFeedsLoss, match="writes the buffer 'count'"):
        compiled(Warm().double(), {"data": 1}, "data")


def test_buffers_that_are_written_from_the_batch_and_feed_the_loss_are_refused() -> None:
    with pytest.raises(BufferFeedsLoss, match="writes the buffer 'queue'") as caught:
        compiled(Queue().double(), {"data": 1}, "data")
    assert "micro_batch_models.py" in str(caught.value.where)


@pytest.mark.parametrize(
    "options", [{"schedule": "seq-1f1b"}, {"schedule": "pipedream", "stale_weights": True}]
)
def test_schedules_of_slices_and_of_old_weights_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ScheduleNotYet, match="as separate programs"):
        compiled(Dropped().double(), {"pipe": 2}, "pipeline", **options)
