"""Custom operators with rules of the user's, from the trace to real processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import custom_ops
import pytest
import torch
from models import Training
from torch import Tensor, nn
from training import Captured, Values, capture, check_equal, train_eagerly

import shardc
from shardc.cli import main
from shardc.report.traffic import transfers

ROWS, SCALE = torch.randn(2, 4, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)


@shardc.rule("shardc_e2e::row_norm", samples=[(ROWS, 1e-5)])
def row_norm(call: Any) -> str:
    return "([...,d])->([...,d]) replicate={d}"


@shardc.rule("shardc_e2e::row_norm_backward", samples=[(ROWS, ROWS.flip(0), 1e-5)])
def row_norm_backward(call: Any) -> str:
    return "([...,d],[...,d])->([...,d]) replicate={d} linear={0}"


@shardc.rule("shardc_e2e::scaled_add", samples=[(ROWS, ROWS.flip(0), SCALE)])
def scaled_add(call: Any) -> str:
    return "([...,d],[...,d],[d])->([...,d]) linear={0,1} linear={0,2}"


@shardc.rule("shardc_e2e::scaled_add_backward", samples=[(ROWS, ROWS.flip(0), SCALE)])
def scaled_add_backward(call: Any) -> str:
    return "([...,d],[...,d],[d])->([...,d],[d]) reduce={...} linear={0}"


class Net(nn.Module):
    """A residual block whose sum and norm are custom operators."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.scale = nn.Parameter(torch.rand(16))

    def forward(self, x: Tensor) -> Tensor:
        x = custom_ops.row_norm(self.first(x), 1e-5)
        hidden = self.up(x)
        return self.down(custom_ops.scaled_add(hidden, hidden.tanh(), self.scale))


def loss(out: Tensor, batch: Any) -> Tensor:
    return out.square().mean()


TRAINING = Training(Net, lambda: (torch.randn(4, 4, 6),), loss=loss)
MESHES = {
    "data2": ({"data": 2}, "data"),
    "tensor2": ({"tensor": 2}, "tensor"),
    "data2-tensor2": ({"data": 2, "tensor": 2}, "zero3:data*tensor"),
}


@pytest.fixture(scope="module")
def captured() -> Captured:
    return capture(TRAINING)


@pytest.fixture(scope="module")
def trained() -> list[Values]:
    return train_eagerly(TRAINING)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mesh", MESHES)
def test_equals_eager_training(mesh: str, captured: Captured, trained: list[Values]) -> None:
    compiled = captured.compile(*MESHES[mesh])
    assert not [r.render() for r in compiled.remarks if r.name == "ReplicatedOp"]
    check_equal(captured, compiled, TRAINING, trained)


def test_the_rules_are_followed(captured: Captured) -> None:
    """Hidden columns stay cut through the sum: nothing is gathered; two activations and the loss's terms are
    summed.
    """
    rank = captured.compile({"tensor": 2}, "tensor").rank_module
    kinds = [t.kind for t in transfers(rank)]
    assert set(kinds) == {"all_reduce"}, kinds
    assert re.search(r"shardc_e2e\.scaled_add\"\(.*-> !torch.vtensor<\[4,4,8\],f64>", str(rank))


def test_a_call_unlike_the_samples_is_replicated_and_said_so() -> None:
    """With eps 0, which no sample has, the operator might be another function."""

    class Other(Net):
        def forward(self, x: Tensor) -> Tensor:
            return custom_ops.row_norm(self.first(x), 0.0)

    compiled = capture(Training(Other, TRAINING.batch, loss=loss)).compile({"data": 2}, "data")
    remarks = [r.message for r in compiled.remarks if r.name == "ReplicatedOp"]
    assert len(remarks) == 2
    assert (
        "row_norm is called with arguments of which its rule has no sample, so every device computes"
        in remarks[0]
    )


SCRIPT = """import sys
sys.path.insert(0, {folder!r})
import test_custom_op as given, torch
def build():
    model = given.Net()
    return model, torch.optim.SGD(model.parameters(), lr=0.1), given.TRAINING.batch(), given.loss
"""


@pytest.mark.slow
@pytest.mark.processes
def test_an_artefact_asks_for_the_operators(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    here = Path(__file__).parent
    script, out = tmp_path / "script.py", str(tmp_path / "out")
    script.write_text(SCRIPT.format(folder=str(here)))
    command = ["compile", str(script), "--mesh", "tensor=2", "--plan", "tensor", "-o", out, "--verify"]
    assert main(command) == 0
    capfd.readouterr()
    library = ["--import", str(here / "custom_ops.py")]
    assert main(["run", out, "--nproc", "2", "--steps", "2"]) == 2
    assert "MissingOperator: the program calls shardc_e2e::row_norm, " in capfd.readouterr().err
    assert main(["run", out, "--nproc", "2", "--steps", "2", *library]) == 0
    assert len(re.findall(r"loss \S+", capfd.readouterr().out)) == 2
    for asked, extra, code, text in (
        ("check", (), 2, "MissingOperator"),
        ("check", library, 0, "equal to the single-device program"),
        ("explain", (), 2, "MissingOperator"),
        ("explain", library, 0, "collectives"),
        ("explain", [*library, "--fusion"], 0, "kernels replace"),
    ):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from shardc.cli import main; sys.exit(main())",
                asked,
                out,
                *extra,
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert text in done.stdout + done.stderr
