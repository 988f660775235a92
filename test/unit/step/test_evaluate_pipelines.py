"""``step.evaluate``, ``step.forward`` and ``compile_forward`` in a pipeline, by the oracle."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import shardc
from shardc.diagnostics.passes.plan import TooManyWays
from shardc.dialects.pipe.stage_graph import Reads
from shardc.passes.pipeline.schedules.forward_alone import forward_alone
from shardc.passes.pipeline.stages.held import read_held
from shardc.step.compile_forward import CompiledForward
from shardc.step.compile_step import CompiledStep
from shardc.step.levels import PIPELINE


class Net(nn.Module):
    """Dropout, a buffer, a residual, and outputs of several stages."""

    def __init__(self, norm: type[nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(6, 8), norm(8)
        self.middle, self.down, self.dropout = nn.Linear(8, 8), nn.Linear(8, 6), nn.Dropout(0.5)
        self.register_buffer("scale", torch.rand(8) + 1)

    def forward(self, x: Tensor) -> dict[str, Any]:
        early = self.norm(self.up(x)).relu()
        late = self.middle(self.dropout(early)).relu() * self.scale
        return {"logits": x + self.down(self.dropout(late)), "early": (early, 7), "twice": 2 * x}


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(6, 6) for _ in range(4))


class SkipsInside(Layers):
    """Reads nothing of two stages in eval mode."""

    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = self.c(self.b(self.a(x)).relu()) if self.training else self.a(x)
        return {"logits": self.d(hidden)}


class SkipsTheEnd(Layers):
    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = self.b(self.a(x).relu())
        return {"logits": self.d(self.c(hidden).relu()) if self.training else hidden}


class Backwards(Layers):
    """Reads the stages' weights in another order in eval mode."""

    def forward(self, x: Tensor) -> dict[str, Any]:
        layers = [self.a, self.b, self.c, self.d]
        for layer in layers if self.training else layers[::-1]:
            x = layer(x).relu()
        return {"logits": x}


class Tied(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.d.weight = self.a.weight

    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"logits": self.d(self.c(self.b(self.a(x).relu()).relu()).relu())}


class Towers(Layers):
    """Two layers beside each other, of which the first is used after the second."""

    def forward(self, x: Tensor) -> dict[str, Any]:
        left, right = self.a(x), self.b(x).sigmoid()
        return {"logits": self.d(self.c(left.relu() + right).relu())}


class TowersInARow(Layers):
    """Two layers beside each other, and one after the other in eval mode."""

    def forward(self, x: Tensor) -> dict[str, Any]:
        left = self.a(x).relu()
        right = self.b(x if self.training else left).sigmoid()
        return {"logits": self.d(self.c(left + right).relu())}


def batch(rows: int = 8) -> dict[str, Tensor]:
    return {"x": torch.randn(rows, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)}


def loss_of(output: Any, _: object) -> Tensor:
    return output["logits"].square().mean()


def largest(output: Any, _: object) -> Tensor:
    return output["logits"].amax()


def compiled(model: nn.Module, **options: Any) -> CompiledStep:
    torch.manual_seed(0)
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"mesh": {"pipe": 2}, "plan": "pipeline", "micro_batches": 4, "fuse": False, "loss": loss_of}
    return shardc.compile_step(model, optimizer, batch(), **{**given, **options})


def proved(step: CompiledStep, what: str, rows: int = 8) -> CompiledForward:
    """The program of ``evaluate`` or ``forward``: the step's forwards, on the ranks that hold the weights."""
    made = step._forwards.program(step.compiled, batch(rows), what)
    proof = made.check()
    assert proof.passed, proof.render()
    assert step.compiled.pipeline_module is not None and made.compiled.pipeline_module is not None
    theirs, mine = read_held(step.compiled.pipeline_module), read_held(made.compiled.pipeline_module)
    assert mine.ranks == theirs.ranks
    assert mine.schedule == forward_alone(theirs.schedule)
    return made


CASES: dict[str, dict[str, Any]] = {
    "1f1b": {},
    "data": {"mesh": {"pipe": 2, "data": 2}, "plan": "pipeline*data"},
    "gathered": {"mesh": {"data": 2, "pipe": 2}, "plan": "pipeline*zero3", "gather": "step"},
    **{name: {"schedule": name} for name in ("chimera", "interleaved", "zb-v", "dualpipe-v")},
    "recompute": {"recompute": "full"},
    "stale": {"schedule": "pipedream", "stale_weights": True},
    "fused": {"fuse": True},
}
QUICK = ("1f1b", "gathered", "chimera", "interleaved")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ["evaluate", "forward"])
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_programs_over_the_stages_tensors_are_proved(name: str, what: str) -> None:
    outputs = None if name == "stale" else {"early": "early.0", "largest": largest, "norm": "grad_norm"}
    made = proved(compiled(Net(), outputs=outputs, **CASES[name]), what)
    found = {entry["name"] for entry in made.compiled.description["results"]}
    wanted = {"evaluate": {"loss", *(outputs or {})} - {"norm"}}
    assert found == wanted.get(what, {"output['logits']", "output['early'][0]", "output['twice']"})


def test_a_pipeline_of_batch_norms_evaluates_the_whole_batch() -> None:
    step = compiled(Net(nn.BatchNorm1d), per_micro_batch=True)
    for what in ("evaluate", "forward"):
        proved(step, what)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", [SkipsInside, SkipsTheEnd, Backwards, Tied])
def test_only_weights_that_are_read_out_of_order_are_sent(model: type[nn.Module]) -> None:
    made = proved(compiled(model(), mesh={"pipe": 4}), "evaluate")
    assert ('tag = "param:' in made.compiled.levels[PIPELINE]) == (model is Backwards)


@pytest.mark.parametrize(("model", "reads"), [(Towers, ((), (), (0, 1))), (TowersInARow, ())])
def test_towers_are_evaluated_on_their_stages(model: type[nn.Module], reads: Reads) -> None:
    """What stages read follows from the program that is evaluated."""
    step = compiled(model(), mesh={"pipe": 3}, stages=["b", "c"])
    for what in ("evaluate", "forward"):
        made = step._forwards.program(step.compiled, batch(), what)
        assert made.check().passed
        assert step.compiled.pipeline_module is not None and made.compiled.pipeline_module is not None
        theirs, mine = read_held(step.compiled.pipeline_module), read_held(made.compiled.pipeline_module)
        assert (theirs.schedule.reads, mine.schedule.reads) == (((), (), (0, 1)), reads)
        assert mine.ranks == theirs.ranks


def test_a_last_batch_of_any_size_is_evaluated() -> None:
    step = compiled(Net())
    proved(step, "forward", rows=5)
    with pytest.raises(TooManyWays, match="has 3 elements and cannot be sharded 4 ways"):
        step._forwards.program(step.compiled, batch(3), "forward")


@pytest.mark.parametrize("name", ["data", "chimera"])
def test_a_forward_by_itself_may_be_a_pipeline(name: str) -> None:
    given = {"mesh": {"pipe": 2}, "plan": "pipeline", **CASES[name]}
    proof = shardc.compile_forward(Net().double(), batch(), micro_batches=4, fuse=False, **given).check()
    assert proof.passed, proof.render()
