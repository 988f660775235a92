"""TrainStep on a mesh of one rank, in this process: seeds, hyperparameters, state, checkpoints."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from shardc.report.timeline_trace import read_run
from shardc.runtime import TrainStep
from shardc.runtime.errors import BadSeed, NothingToTrace, StateMismatch, StepNotCopied, WorldMismatch
from shardc.runtime.program import Program

PROGRAM = """
import torch
DATA = (("data", 1, 1),)
GROUPS = [DATA]
def step(rank, w, m, lr, x, seed, c):
    new_m = m * c + x
    rank.store(m, new_m)
    total = rank.all_reduce(new_m, axes=DATA, reuse=True)
    gathered = rank.all_gather(total.wait(), dim=0, axes=DATA).wait()
    new_w = w - lr * gathered
    rank.store(w, new_w.t().contiguous().t())
    return (new_w.sum() + seed, new_w)
"""


def leaf(
    name: str, role: str, shape: list[int], dtype: str = "float64", dims: Any = None, **more: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "role": role,
        "shape": shape,
        "dtype": dtype,
        "sharding": {"dims": dims or [[] for _ in shape], "partial": []},
        **more,
    }


@pytest.fixture
def manifest() -> dict[str, Any]:
    return {
        "mesh": [{"name": "data", "size": 1, "kind": "space"}],
        "arguments": [
            leaf("w", "param", [2, 3], dims=[[["data", 1, 1]], []]),
            leaf("w/m", "opt_state", [2, 3], fill=0.0),
            leaf("group0.lr", "hyper", []),
            leaf("x", "input", [2, 3]),
            leaf("seed", "seed", [], "int64"),
            leaf("constant0", "constant", []),
        ],
        "hyperparameters": [
            {"name": "group0.lr", "group": 0, "key": "lr", "index": None, "first_step": None, "value": 0.5}
        ],
        "baked": [],
        "operators": [],
        "kernels": [],
        "pipeline": [],
        "target": "",
        "batch": {"sequence": [{"leaf": "x"}]},
        "seed": 100,
        "tied": {"alias": "w"},
    }


CONSTANTS = {"constant0": torch.tensor(2.0, dtype=torch.float64)}
W = torch.arange(6, dtype=torch.float64).view(2, 3)
X = torch.ones(2, 3, dtype=torch.float64)


@pytest.fixture
def step(manifest: dict[str, Any]) -> TrainStep:
    return TrainStep(Program.of(PROGRAM), manifest, CONSTANTS, state={"w": W}, device="cpu")


def test_steps_without_a_process_group(step: TrainStep) -> None:
    m, w = torch.zeros(2, 3), W.clone()
    for number in range(3):
        step.hyper["group0.lr"] = 0.1 * number
        m = m * 2 + X
        w = w - 0.1 * number * m
        loss = step(X)
        assert loss.item() == pytest.approx(w.sum().item() + 100 + number)
    assert step.steps_done == 3
    assert not dist.is_initialized()
    assert torch.allclose(step.state.local["w"], w)
    assert torch.equal(W, torch.arange(6, dtype=torch.float64).view(2, 3)), (
        "the user's own tensor is left alone"
    )


def test_parameters_are_dtensors_that_follow(step: TrainStep) -> None:
    (name, parameter), *more = step.named_parameters()
    assert (name, more) == ("w", [])
    assert isinstance(parameter, DTensor)
    assert [type(p).__name__ for p in parameter.placements] == ["Shard"]
    step(X)
    assert torch.equal(parameter.full_tensor(), W - 0.5)
    assert next(step.parameters()) is parameter
    assert parameter.to_local().is_contiguous()
    assert set(step.state_dict()) == {"w", "w/m"}


def test_checkpoint(step: TrainStep, manifest: dict[str, Any], tmp_path: Path) -> None:
    step.hyper["group0.lr"] = 0.25
    step.seed = 7
    step(X)
    step.save_checkpoint(tmp_path / "saved")
    expected = step(X)
    other = TrainStep(Program.of(PROGRAM), manifest, CONSTANTS, state={"w": W * 9}, device="cpu")
    other.load_checkpoint(tmp_path / "saved")
    assert (other.steps_done, other.seed, other.hyper["group0.lr"]) == (1, 7, 0.25)
    assert torch.equal(other(X), expected)


@pytest.mark.parametrize("seed", [2**63, -(2**62) - 1, "7", 1.5, True])
def test_a_seed_out_of_range(step: TrainStep, manifest: dict[str, Any], seed: Any) -> None:
    with pytest.raises(BadSeed, match="not a whole number from"):
        step.seed = seed
    assert step.seed == 100
    with pytest.raises(BadSeed):
        TrainStep(Program.of(PROGRAM), {**manifest, "seed": seed}, CONSTANTS, state={"w": W}, device="cpu")
    step.seed = -(2**62)
    assert step(X).isfinite()


@pytest.mark.parametrize("work", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_step_is_not_copied(step: TrainStep, work: Callable[[TrainStep], object]) -> None:
    with pytest.raises(StepNotCopied, match="save_checkpoint"):
        work(step)


def test_state_by_function(manifest: dict[str, Any]) -> None:
    asked = []

    def make(
        name: str, shape: tuple[int, ...], dtype: torch.dtype, slices: tuple[slice, ...]
    ) -> torch.Tensor | None:
        asked.append((name, shape, dtype, slices))
        return torch.full(shape, 4.0, dtype=dtype)[slices] if name == "w" else None

    step = TrainStep(Program.of(PROGRAM), manifest, CONSTANTS, state=make, device="cpu")
    whole = (slice(0, 2), slice(0, 3))
    assert asked == [("w", (2, 3), torch.float64, whole), ("w/m", (2, 3), torch.float64, whole)]
    assert step.state.local["w"].unique().tolist() == [4.0]
    assert step.state.local["w/m"].unique().tolist() == [0.0], (
        "what the function leaves out has its fill value"
    )


def test_a_tied_name_stands_for_its_tensor(manifest: dict[str, Any]) -> None:
    step = TrainStep(Program.of(PROGRAM), manifest, CONSTANTS, state={"alias": W}, device="cpu")
    assert torch.equal(step.state.local["w"], W)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "param 'w' .float64 .2, 3.. has no initial value"),
        ({}, "lacks 'w'"),
        ({"w": W, "v": W}, "has unknown 'v'"),
        ({"w": W.t()}, r"param 'w' has shape \[3, 2\]; the program was compiled for \[2, 3\]"),
        (lambda *_: W[:1], r"the initialiser gave \[1, 3\] for a block of \[2, 3\]"),
    ],
)
def test_wrong_state(manifest: dict[str, Any], state: Any, message: str) -> None:
    with pytest.raises(StateMismatch, match=message):
        TrainStep(Program.of(PROGRAM), manifest, CONSTANTS, state=state, device="cpu")


PIPELINE = """
import time
GROUPS = []
def stage_0_F(rank, micro, x):
    time.sleep(0.01)
    return (x + micro,)
def stage_0_B(rank, micro, x):
    return (x * 2,)
def rank_0(rank, x):
    a, = stage_0_F(rank, 0, x)
    b, = stage_0_F(rank, 1, x)
    a, = stage_0_B(rank, 0, a)
    b, = stage_0_B(rank, 1, b)
    return ((a + b).sum(),)
STEPS = [rank_0]
ACTIONS = [
    "0F0 0F1 0B0 0B1",
]
"""


def test_the_trace_of_a_pipeline(manifest: dict[str, Any], tmp_path: Path) -> None:
    manifest["mesh"] = [{"name": "pipe", "size": 1, "kind": "space"}]
    manifest["arguments"] = [leaf("x", "input", [2, 3])]
    manifest["pipeline"] = [{"name": "pipe", "arguments": [[["input", "x"]]]}]
    manifest["hyperparameters"] = []
    step = TrainStep(Program.of(PIPELINE), manifest)
    x = torch.ones(2, 3, dtype=torch.float64)
    plain = step([x])
    assert step.trace([x], tmp_path / "run.json") == plain and step.steps_done == 2
    (spans,) = read_run(tmp_path / "run.json").spans
    assert [str(span.action) for span in spans] == ["0F0", "0F1", "0B0", "0B1"]
    assert all(span.end_s - span.start_s >= 0.01 for span in spans[:2])
    before = (tmp_path / "run.json").read_text()
    step([x])
    assert (tmp_path / "run.json").read_text() == before


def test_the_trace_of_a_step(step: TrainStep, tmp_path: Path) -> None:
    x = torch.ones(2, 3, dtype=torch.float64)
    plain = step.trace([x], tmp_path / "run.json")
    assert step.steps_done == 1 and torch.is_tensor(plain)
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert events[0]["args"] == {"name": "rank 0 (measured)"}
    before = (tmp_path / "run.json").read_text()
    step([x])
    assert (tmp_path / "run.json").read_text() == before


def test_a_cuda_graph_has_nothing_to_trace(step: TrainStep, tmp_path: Path) -> None:
    step._graphed = object()
    with pytest.raises(NothingToTrace, match="a CUDA graph is a single launch"):
        step.trace([torch.ones(2, 3, dtype=torch.float64)], tmp_path / "run.json")
    assert step.steps_done == 0 and not (tmp_path / "run.json").exists()


def test_wrong_world(manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(WorldMismatch, match=r"a mesh of 1 ranks \(data 1\), but 3 are running"):
        TrainStep(Program.of(PROGRAM), manifest, CONSTANTS, state={"w": W})
