"""``shardc explain --fusion`` on an MLIR file, a script and an artefact, with edges forbidden and forced;
``shardc compile`` with such edges.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch_mlir import ir

from shardc.cli import main
from shardc.commands import explain_fusion as driver
from shardc.dialects.context import new_context
from shardc.passes.fuse.grouping.explain import calls_in_kernels, explain_fusion, read_fusion
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.passes.manager.program import copy_module

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
    assert explained(capsys, str(path)).startswith(
        "1 kernels replace 2 of 2 calls: 2 launches become 1, 512 bytes"
    )
    text = explained(capsys, str(path), "--forbid-fusion", "tanh+exp")
    apart = "1 pairs of calls do not share a kernel, which would save 1 launches and 256 bytes"
    assert text.startswith(f"forbidden: {apart} of memory traffic\n")
    assert "not fused: forbidden by tanh+exp (it would save a launch and 256 bytes)" in text


def test_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    text = explained(capsys, str(path))
    assert "train.py:10" in text and "aten.tanh" in text


def compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[Path, str]:
    """The folder of SCRIPT on two devices, and what was said."""
    (tmp_path / "train.py").write_text(SCRIPT)
    assert (
        main(
            ["compile", str(tmp_path / "train.py"), "--mesh", "data=2", "-o", str(tmp_path / "out"), *options]
        )
        == 0
    )
    return tmp_path / "out", capsys.readouterr().out


def kernels_of(folder: Path) -> list[list[str]]:
    return [entry["ops"] for entry in json.loads((folder / "shardc.json").read_text())["kernels"]]


def test_an_artefact_has_the_kernels_that_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, said = compiled(tmp_path, capsys)
    assert "forbidden: " not in said
    assert kernels_of(folder)[0][:2] == ["aten.mul.Tensor", "aten.tanh"]
    text = explained(capsys, str(folder))
    assert text.startswith(f"{len(kernels_of(folder))} kernels replace ")
    assert "pairs of calls that were considered" in text and "train.py:10" in text


def test_wishes_in_a_compile_with_their_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = compiled(tmp_path, capsys)[0]
    constraints = ("--forbid-fusion", "mul+tanh", "--force-fusion", "tanh+pow")
    predicted = explained(capsys, str(plain), *constraints).splitlines()[0]
    assert predicted.startswith("forbidden: ") and "; forced: " in predicted
    folder, said = compiled(tmp_path, capsys, *constraints, "--verify")
    assert predicted in said
    assert not any({"aten.mul.Tensor", "aten.tanh"} <= set(ops) for ops in kernels_of(folder))
    text = explained(capsys, str(folder))
    assert (
        text.startswith("compiled with: forbid mul+tanh, force tanh+pow\n\n")
        and "not fused: forbidden by mul+tanh" in text
    )
    back = explained(capsys, str(folder), "--force-fusion", "mul+tanh").splitlines()[0]
    assert back.startswith("forced: ") and "share a kernel, which saves" in back


def test_a_folder_without_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = compiled(tmp_path, capsys, "--no-fuse")
    assert explained(capsys, str(folder)).startswith(
        "the folder has no kernels; compiled with kernels, it would have these:\n\n"
    )


def test_a_folder_of_another_version_is_explained_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if this version fused nothing."""
    folder, _ = compiled(tmp_path, capsys)
    nothing = explain_fusion(ir.Module.parse("module {}", new_context()))
    monkeypatch.setattr(driver, "_explained", lambda *_: nothing)
    text = explained(capsys, str(folder))
    assert text.startswith("this version of shardc fuses levels/3-rank.mlir differently")
    assert (
        f"{len(kernels_of(folder))} kernels replace " in text
        and "pairs of calls that were considered" not in text
    )


def test_what_a_program_says_of_its_fusion() -> None:
    with new_context():
        module = ir.Module.parse(MODULE)
    fused = copy_module(module)
    assert calls_in_kernels(fused) == frozenset()
    fuse_module(fused)
    report = read_fusion(module, fused)
    assert calls_in_kernels(fused) == {"0.0", "0.1"}
    assert (report.before.launches, report.after.launches, report.after.moved_bytes) == (2, 1, 256)
    assert [[op.target for op in kernel.ops] for kernel in report.kernels] == [["aten.tanh", "aten.exp"]]
    assert report.staying == report.pairs == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--force-fusion", "mul+gelu"], "NoSuchFusionEdge"),
        (["--forbid-fusion", "mul"], "BadFusionEdge"),
        (
            ["--force-fusion", "mul+tanh", "--no-fuse"],
            "FusionRefused: 'mul+tanh' cannot share one kernel: fuse is False",
        ),
    ],
)
def test_wishes_that_a_compile_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    assert (
        main(
            ["compile", str(tmp_path / "train.py"), "--mesh", "data=2", "-o", str(tmp_path / "out"), *options]
        )
        == 2
    )
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_level_4_alone_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = compiled(tmp_path, capsys)
    assert main(["explain", str(folder / "levels" / "4-kernel.mlir"), "--fusion"]) == 2
    assert "it holds kernels already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fusion", "--forbid-fusion", "tanh+gelu"], "NoSuchFusionEdge"),
        (["--fusion", "--force-fusion", "tanh"], "BadFusionEdge"),
        (["--forbid-fusion", "tanh+exp"], "--fusion"),
        (["tanh", "--fusion"], "--fusion"),
    ],
)
def test_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    path = tmp_path / "step.mlir"
    path.write_text(MODULE)
    assert main(["explain", str(path), *arguments]) == 2
    assert message in capsys.readouterr().err
