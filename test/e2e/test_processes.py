"""Models trained for three steps on real processes over Gloo, from artefacts, against eager training."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from models import TRAININGS, Training, default_f64, sgd
from pipelines import PIPELINED
from safetensors.torch import save_file
from stale_training import CASES, stale_training
from torch_mlir import ir
from training import STEPS, Values, errors, train_eagerly

from shardc.commands.check import check_artefact
from shardc.commands.run import run_artefact
from shardc.diagnostics.runtime import BadArtefact, RankFailed
from shardc.dialects.context import new_context
from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.report.timeline_trace import read_run
from shardc.step.compile_step import compile_step
from shardc.step.values import batch_leaves

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Run:
    """``bound`` is on the error of each tensor, by the metric of ``training.errors``. ``fuse``: with compiled
    kernels.

    ``pipeline``: options of a plan with one.
    """

    training: Training
    mesh: dict[str, int]
    plan: str
    bound: float
    fuse: bool = True
    pipeline: dict[str, Any] = field(default_factory=dict)


def pipeline_of_two(training: Training, bound: float, schedule: str) -> Run:
    return Run(training, {"pipe": 2}, "pipeline", bound, False, {"micro_batches": 4, "schedule": schedule})


RUNS = {
    # Llama and T5 compute norms in f32. SGD then, not Adam: its steps are as far off as its gradients.
    "llama-data2-tensor2": Run(
        replace(TRAININGS["llama"], optimizer=sgd), {"data": 2, "tensor": 2}, "data*tensor", 1e-5
    ),
    # In f64, with ATen's own cross entropy in f32.
    "gpt2-zero3-4": Run(TRAININGS["gpt2"], {"data": 4}, "zero3", 1e-9, fuse=False),
    # Queries, keys and values of one weight, stored in blocks of heads.
    # The loss takes logits in f32, whose classes ranks share out: sums round differently, so SGD here too.
    "gpt2-data2-tensor2": Run(
        replace(TRAININGS["gpt2"], optimizer=sgd), {"data": 2, "tensor": 2}, "data*tensor", 1e-5, fuse=False
    ),
    "t5-tensor2": Run(replace(TRAININGS["t5"], optimizer=sgd), {"tensor": 2}, "tensor", 1e-5),
    "convnet-data2": Run(TRAININGS["convnet"], {"data": 2}, "data", 1e-9),
    "llama-pipe4": Run(
        replace(TRAININGS["llama"], optimizer=sgd),
        {"pipe": 4},
        "pipeline",
        1e-5,
        False,
        {"micro_batches": 8, "schedule": "zb-h1"},
    ),
    "llama-pipe4-evictions": Run(  # the last rank keeps activations for the first
        replace(TRAININGS["llama"], optimizer=sgd),
        {"pipe": 4},
        "pipeline",
        1e-5,
        False,
        {"micro_batches": 8, "balance_activations": True},
    ),
    "gpt2-pipe2-data2": Run(  # the tied weight is on both ranks of the pipeline
        TRAININGS["gpt2"],
        {"pipe": 2, "data": 2},
        "pipeline*zero1",
        1e-9,
        False,
        {"micro_batches": 4, "schedule": "interleaved"},
    ),
    "llama-pipe2-slices": Run(
        replace(TRAININGS["llama"], optimizer=sgd),
        {"pipe": 2},
        "pipeline",
        1e-5,
        False,
        {"micro_batches": 4, "schedule": "seq-1f1b"},
    ),
    "llama-pipe2-data2": Run(  # with kernels in its stages
        replace(TRAININGS["llama"], optimizer=sgd),
        {"pipe": 2, "data": 2},
        "pipeline*data",
        1e-5,
        pipeline={"micro_batches": 4},
    ),
    "gpt2-pipe2-zero3": Run(  # parameters gathered once a step, gradients reduced among the actions
        TRAININGS["gpt2"],
        {"pipe": 2, "data": 2},
        "pipeline*zero3",
        1e-9,
        False,
        {"micro_batches": 4, "gather": "step"},
    ),
    "unet-pipe2": Run(
        PIPELINED["unet"], {"pipe": 2}, "pipeline", 1e-9, False, {"micro_batches": 4, "stages": ["up"]}
    ),
    # With these, two schedules for each of Llama, T5 and a model with skip connections.
    "llama-pipe2-interleaved": pipeline_of_two(
        replace(TRAININGS["llama"], optimizer=sgd), 1e-5, "interleaved"
    ),
    "t5-pipe2-1f1b": pipeline_of_two(replace(PIPELINED["t5"], optimizer=sgd), 1e-5, "1f1b"),
    "t5-pipe2-zb-v": pipeline_of_two(replace(PIPELINED["t5"], optimizer=sgd), 1e-5, "zb-v"),
    "skips-pipe2-v-half": pipeline_of_two(PIPELINED["skips"], 1e-9, "v-half"),
}


@pytest.mark.slow
@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", RUNS)
def test_equals_eager_training(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = RUNS[name]
    wanted = train_eagerly(run.training, wide=False)
    compile_to(tmp_path / "out", run)
    capfd.readouterr()
    trace = tmp_path / "trace.json" if run.pipeline else None
    options = {"save": tmp_path / "trained", "batches": tmp_path / "out.batches", "trace": trace}
    ranks = torch.Size(run.mesh.values()).numel()
    assert run_artefact(tmp_path / "out", ranks, STEPS, options, cluster="h100") == 0
    if trace is not None:
        assert check_artefact(tmp_path / "out", 1).passed
        ran = [tuple(span.action for span in spans) for spans in read_run(trace).spans]
        assert ran == orders_of(tmp_path / "out")
    printed = [float(text) for text in re.findall(r"loss (\S+)", capfd.readouterr().out)]
    losses = [values.pop(("loss", "loss")).item() for values in wanted]
    assert printed == pytest.approx(losses, rel=max(run.bound, 1e-5))  # six digits are printed
    final = {key: value for key, value in wanted[-1].items() if key[0] != "loss"}
    wrong = {
        key: e for key, e in errors(load(tmp_path / "trained", final), final).items() if not e <= run.bound
    }
    assert not wrong


@pytest.mark.slow
def test_old_weights(tmp_path: Path) -> None:
    """PipeDream on two processes, against the loop that keeps old weights by hand."""
    case = next(case for case in CASES if case.model == "unet")
    options = {
        "micro_batches": case.micro_batches,
        "stages": ["up"],
        "schedule": "pipedream",
        "stale_weights": True,
    }
    compile_to(tmp_path / "out", Run(PIPELINED["unet"], {"pipe": 2}, "pipeline", 1e-9, False, options))
    stages = {
        name: int(name.startswith(("up.", "out.")))
        for name, _ in PIPELINED["unet"].fresh().named_parameters()
    }
    *_, wanted = stale_training(case, "pipedream", stages, STEPS)
    run_options = {"save": tmp_path / "trained", "batches": tmp_path / "out.batches"}
    assert run_artefact(tmp_path / "out", case.ranks, STEPS, run_options) == 0
    assert check_artefact(tmp_path / "out", 1).passed
    final = {key: value for key, value in wanted.items() if key[0] != "loss"}
    wrong = {key: e for key, e in errors(load(tmp_path / "trained", final), final).items() if not e <= 1e-9}
    assert not wrong


def compile_to(folder: Path, run: Run) -> None:
    """Compile a run to an artefact, and write a batch for each step beside it."""
    with default_f64():
        model = run.training.fresh()
        batches = run.training.batches(STEPS)
        step = compile_step(
            model,
            run.training.optimizer(model),
            batches[0],
            mesh=run.mesh,
            plan=run.plan,
            loss=run.training.loss,
            fuse=run.fuse,
            **run.pipeline,
        )
        step.save(folder)
    assert (folder / "kernels.so").exists() is run.fuse
    leaves = [batch_leaves(step.compiled.capture, batch) for batch in batches]
    tensors = {f"{i}/{name}": tensor for i, batch in enumerate(leaves) for name, tensor in batch.items()}
    save_file(tensors, folder.with_suffix(".batches"))


def orders_of(artefact: Path) -> list[tuple[Action, ...]]:
    """What each rank of a pipeline runs, by the schedule in its level 3."""
    with new_context():
        schedule = find_schedule(ir.Module.parse((artefact / "levels" / "3-pipeline.mlir").read_text()))
    assert schedule is not None
    return list(read_schedule(schedule).orders)


def load(folder: Path, like: Values) -> Values:
    """The tensors of a checkpoint that all ranks wrote, read by one process."""
    state: dict[str, Any] = {name: torch.empty_like(value) for (_, name), value in like.items()}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return {key: state[key[1]] for key in like}


@pytest.mark.slow
def test_a_dead_rank_of_a_pipeline_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_to(tmp_path / "out", RUNS["unet-pipe2"])
    monkeypatch.setenv("SHARDC_FAULT", "1:1")
    with pytest.raises(RankFailed, match="rank 1 was killed by SIGKILL; the other ranks were stopped"):
        run_artefact(tmp_path / "out", 2, STEPS)


def test_a_damaged_pipeline_is_named(tmp_path: Path) -> None:
    compile_to(tmp_path / "out", RUNS["unet-pipe2"])
    manifest = json.loads((tmp_path / "out" / "shardc.json").read_text())
    manifest["pipeline"][0]["arguments"].pop()
    (tmp_path / "out" / "shardc.json").write_text(json.dumps(manifest))
    with pytest.raises(
        BadArtefact, match=r"pipeline\[0\] has arguments for 1 ranks along the axis 'pipe' of \[2\] ways"
    ):
        run_artefact(tmp_path / "out", 2, STEPS)
