"""``shardc explain --fusion`` on an MLIR file and on a script, with edges forbidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardc.cli import main

MODULE = """func.func @step(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  %0 = torch.aten.tanh %x : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  %1 = torch.aten.exp %0 : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return %1 : !torch.vtensor<[4,8],f32>
}"""

SCRIPT = """import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return ((x * self.scale).tanh()).square().sum()


def build():
    model = Model()
    return model, torch.optim.SGD(model.parameters(), lr=0.1), (torch.ones(4, 8),)
"""


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["explain", *arguments, "--fusion"]) == 0
    return capsys.readouterr().out


def test_a_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "step.mlir"
    path.write_text(MODULE)
    assert explained(capsys, str(path)).startswith("1 kernels stand for 2 of 2 calls: 2 launches become 1, 512 bytes")
    text = explained(capsys, str(path), "--forbid", "tanh+exp")
    assert text.startswith("what is forbidden and forced: +1 launches, +256 bytes of memory traffic\n")
    assert "not fused: forbidden by tanh+exp (it would save a launch and 256 bytes)" in text


def test_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    text = explained(capsys, str(path))
    assert "train.py:10" in text and "aten.tanh" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fusion", "--forbid", "tanh+gelu"], "NoSuchFusionEdge"),
        (["--fusion", "--force", "tanh"], "BadFusionEdge"),
        (["--forbid", "tanh+exp"], "--fusion"),
        (["tanh", "--fusion"], "--fusion"),
    ],
)
def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    path = tmp_path / "step.mlir"
    path.write_text(MODULE)
    assert main(["explain", str(path), *arguments]) == 2
    assert message in capsys.readouterr().err
