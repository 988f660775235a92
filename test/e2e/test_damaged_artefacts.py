"""Artefacts that are truncated, changed, of another version or of another program, given to ``check``,
``run`` and ``explain``: each names the file and what is wrong with it, and starts nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_mlir import ir

from shardc.backends.cpu.compile import build_library
from shardc.cli import main
from shardc.commands.check import check_artefact
from shardc.diagnostics.runtime import BadArtefact
from shardc.dialects.context import new_context

SCRIPT = """import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, (torch.randn(8, 8),), lambda out, batch: out.square().mean()
"""
LEVEL_1, LEVEL_3, LEVEL_4 = "levels/1-global.mlir", "levels/3-rank.mlir", "levels/4-kernel.mlir"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``run("check", folder)``: exit code, output and errors; never a traceback, never an internal error."""

    def run_(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        assert "internal error" not in captured.err
        return code, captured.out, captured.err

    return run_


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLP's artefact for two ranks. Not to be changed: take ``folder``."""
    root = tmp_path_factory.mktemp("artefact")
    (root / "train.py").write_text(SCRIPT)
    assert (
        main(
            [
                "compile",
                str(root / "train.py"),
                "--mesh",
                "data=2",
                "--plan",
                "zero3",
                "-o",
                str(root / "out"),
            ]
        )
        == 0
    )
    return root / "out"


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "out"))


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "shardc.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def sign(folder: Path, name: str) -> None:
    """Make the manifest agree with a changed file, as someone who knows the format would."""
    data = (folder / name).read_bytes()
    entry = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change_manifest(folder, lambda m: m["files"].update({name: entry}))


def rewrite(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))


@pytest.mark.slow
def test_a_whole_artefact_passes(run: Run, whole: Path) -> None:
    code, out, _ = run("check", whole, "--steps", "2")
    assert code == 0
    for part in ("2 simulated ranks, 2 steps", "in float64", "in the program's own precision", "equal: "):
        assert part in out
    assert out.rstrip().endswith("\nequal to the single-device program")
    assert "NOT" not in out


COMMANDS = [("check",), ("explain",), ("run", "--nproc", "2")]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
@pytest.mark.parametrize(
    ("damage", "parts"),
    [
        (
            lambda f: (f / "shardc.json").write_text((f / "shardc.json").read_text()[:300]),
            ["manifest is truncated or not JSON", "line 18"],
        ),
        (lambda f: (f / "shardc.json").write_bytes(b"\xff\xfe"), ["manifest is truncated or not JSON"]),
        (
            lambda f: (f / "shardc.json").unlink(),
            ["there is no manifest, so this is not an artefact of shardc"],
        ),
        (
            lambda f: change_manifest(f, lambda m: m["schema"].update(version=9)),
            ["of version 9; this runtime reads version 4"],
        ),
        (
            lambda f: change_manifest(f, lambda m: m["mesh"][0].pop("size")),
            ["manifest is damaged: mesh[0] has no 'size'"],
        ),
        (
            lambda f: change_manifest(f, lambda m: m["files"].clear()),
            ["manifest is damaged: files does not list program.py"],
        ),
        (lambda f: (f / LEVEL_3).unlink(), [f"{LEVEL_3} is missing"]),
        (
            lambda f: (f / LEVEL_3).write_text((f / LEVEL_3).read_text()[:2000]),
            [f"{LEVEL_3} is truncated: 2000 bytes of "],
        ),
        (
            lambda f: rewrite(f, "runtime/step.py", "each training step", "each Training step"),
            ["runtime/step.py was changed since it was compiled"],
        ),
    ],
    ids=["truncated", "binary", "missing", "version", "field", "files", "no-level", "cut-level", "changed"],
)
def test_damage_is_named_by_every_command(
    run: Run, folder: Path, command: tuple[str, ...], damage: Callable[[Path], object], parts: list[str]
) -> None:
    damage(folder)
    code, out, err = run(command[0], folder, *command[1:])
    assert (code, out) == (2, "")
    for part in ("BadArtefact: ", "\n  at: " + str(folder), "\n  try: ", *parts):
        assert part in err, err


def test_a_changed_program_fails_the_check_and_is_not_run(run: Run, folder: Path) -> None:
    rewrite(folder, "program.py", "relu(", "abs(")
    lines = (folder / "program.py").read_text().splitlines()
    number, line = next((n, line.strip()) for n, line in enumerate(lines, 1) if "abs(" in line)
    code, out, _ = run("check", folder, "--steps", "1")
    assert code == 1
    right = line.replace("abs(", "relu(")
    assert f"program.py: was changed: line {number} is {line!r}, {LEVEL_4} emits {right!r}" in out
    assert out.rstrip().endswith("NOT equal to the single-device program")
    assert run("run", folder, "--nproc", "2")[0] == 2
    sign(folder, "program.py")
    assert run("check", folder, "--steps", "1")[0] == 1


def test_a_program_with_more_lines_fails_the_check(run: Run, folder: Path) -> None:
    with (folder / "program.py").open("a") as file:
        file.write("# by hand\n")
    code, out, _ = run("check", folder, "--steps", "1")
    assert code == 1
    assert "program.py: was changed: it has " in out


def test_a_changed_level_fails_the_check(run: Run, folder: Path) -> None:
    """The rank program computes something else, and everything was signed: only execution can tell."""
    rewrite(folder, LEVEL_4, "torch.aten.relu ", "torch.aten.abs ")
    sign(folder, LEVEL_4)
    code, out, _ = run("check", folder, "--steps", "1")
    assert code == 1
    assert "NOT equal: " in out and "the first in the program at loss 'loss' of step 0" in out
    assert "FAIL" in out


def test_kernels_that_compute_something_else_fail_the_check(run: Run, folder: Path) -> None:
    """Their bodies are right, and so is f64, where these run; the compiled ones are of bodies with another
    constant.
    """
    text = (folder / LEVEL_4).read_text()
    with new_context():
        module = ir.Module.parse(
            re.sub(r"arith\.constant 2\.0+e\+00 : f32", "arith.constant 3.0 : f32", text)
        )
    shutil.copyfile(build_library(module), folder / "kernels.so")
    sign(folder, "kernels.so")
    code, out, _ = run("check", folder, "--steps", "1")
    assert code == 1
    exact, own = out.split("in the program's own precision")
    assert "NOT equal: " not in exact and "NOT equal: " in own


@pytest.mark.parametrize("command", [("check",), ("run", "--nproc", "2")], ids=lambda c: c[0])
def test_kernels_for_another_cpu_are_refused(
    run: Run, whole: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr("shardc.runtime.kernels.library.cpu_features", frozenset)
    monkeypatch.setattr("shardc.commands.run._launch", lambda _: pytest.fail("processes were started"))
    code, out, err = run(command[0], whole, *command[1:])
    assert (code, out) == (2, "")
    for part in (
        "kernels.so was compiled for a CPU with ",
        "shardc compile` again on this machine (or for its --target: cpu, sm_90, ...), or with --no-fuse",
    ):
        assert part in err


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda m: m["mesh"][0].update(size=4), "mesh 'data': size is 4 there and 2 in the program"),
        (
            lambda m: m["arguments"][0].update(shape=[16, 9]),
            "arguments '0.weight': shape is [16, 9] there and [16, 8]",
        ),
        (lambda m: m["arguments"].pop(0), "they differ in 0.weight"),
        (lambda m: m["results"].reverse(), "they differ in order"),
        (lambda m: m["kernels"][0].update(calls=7), "calls is 7 there and "),
    ],
)
def test_a_manifest_of_another_program_fails_the_check(
    run: Run, folder: Path, change: Callable[[dict[str, Any]], object], problem: str
) -> None:
    change_manifest(folder, change)
    code, _, err = run("check", folder)
    assert code == 1
    assert "NotTheProgram: the manifest does not describe the program in levels/4-kernel.mlir: " in err
    assert problem in err
    assert f"at: {folder / 'shardc.json'}" in err


@pytest.mark.parametrize(
    ("name", "replace", "problem"),
    [
        ("state.safetensors", lambda f: b"123", "state.safetensors can't be read: "),
        (
            "state.safetensors",
            lambda f: (f / "batches.safetensors").read_bytes(),
            "no value of shape [16, 8] for the param '0.weight'",
        ),
        (
            "batches.safetensors",
            lambda f: (f / "state.safetensors").read_bytes(),
            "no value of shape [8, 8] for the input '0'",
        ),
        (LEVEL_1, lambda f: (f / LEVEL_1).read_bytes()[:2000], f"{LEVEL_1}:"),
    ],
)
def test_files_of_something_else(
    run: Run, folder: Path, name: str, replace: Callable[[Path], bytes], problem: str
) -> None:
    (folder / name).write_bytes(replace(folder))
    sign(folder, name)
    code, _, err = run("check", folder)
    assert code == 2
    assert problem in err
    assert "\n  try: " in err


def test_a_plan_of_something_else(run: Run, folder: Path) -> None:
    for text in ("[]", "{", "{}"):
        (folder / "plan.json").write_text(text)
        sign(folder, "plan.json")
        code, _, err = run("explain", folder)
        assert code == 2
        assert "BadArtefact: plan.json is not a plan" in err


def test_explain_names_what_it_can_not_read(run: Run, whole: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "cut.mlir").write_text((whole / LEVEL_3).read_text()[:3000])
    for path, part in (
        (whole / LEVEL_1, "NotAnArtefact: "),
        (whole / LEVEL_1, "so it was not partitioned"),
        (whole / "levels/2-annotated.mlir", "it holds dist.reshard, so it was not partitioned"),
        (whole / "state.safetensors", "UnreadableInput: "),
        (whole / "plan.json", "NotAnArtefact: "),
        (tmp_path / "train.py", "it is not MLIR (custom op 'import' is unknown"),
        (tmp_path / "cut.mlir", "MalformedMlir: "),
        (tmp_path, "there is no manifest, so this is not an artefact of shardc"),
    ):
        code, _, err = run("explain", path)
        assert code == 2
        assert part in err
        assert max(map(len, err.splitlines())) < 400


def test_explain_suggests_names(run: Run, whole: Path) -> None:
    code, out, err = run("explain", whole, "wieght")
    assert (code, out) == (2, "")
    assert "NameNotFound: no parameter or argument of" in err and "the nearest names are weight" in err


def test_explain_says_where_everything_is(run: Run, whole: Path) -> None:
    _, out, _ = run("explain", whole)
    words = " ".join(out.split())
    assert "mesh data 2 (2 devices) plan zero3" in words
    assert "param 0.weight [16, 8] [data, *] plan: zero3" in words
    assert (
        "collectives in order: phase, kind, axes, local shape, count, bytes that each device sends in total"
        in words
    )
    assert re.search(r"forward all_gather data [\dx]+ 1 x \d+ B ", words)
    assert re.search(r"all_gather data .*0\.weight and 3 more.*train\.py:4", words), "the line of build()"
    assert "typer" not in words
    _, out, _ = run("explain", whole / LEVEL_3, "0.weight")
    assert "0.weight/exp_avg_sq" in out and "2.weight" not in out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (
            ["--nproc", "3"],
            "MeshSizeMismatch: the artefact is for a mesh of 2 ranks (data 2), not for 3 processes",
        ),
        (["--nproc", "2", "--load", "."], "BadCheckpointFolder: . holds no checkpoint"),
        (
            ["--nproc", "2", "--save", "mine"],
            "BadCheckpointFolder: mine is not empty and holds no checkpoint; it is not overwritten",
        ),
        (["--nproc", "2", "--save", "mine/notes.txt"], "BadCheckpointFolder: mine/notes.txt is not a folder"),
    ],
)
def test_run_refuses_before_it_starts_anything(
    run: Run, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shardc.commands.run._launch", lambda _: pytest.fail("processes were started"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    code, _, err = run("run", whole, *arguments)
    assert code == 2
    assert part in err and "\n  try: " in err
    assert [(path.name, path.read_text()) for path in (tmp_path / "mine").iterdir()] == [
        ("notes.txt", "mine")
    ]


@pytest.mark.slow
@pytest.mark.processes
def test_ranks_print_a_traceback_only_if_asked(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The manifest says other arguments than the program takes, which no rank looks for."""
    change_manifest(folder, lambda m: m["arguments"].pop(0))
    for debug in (False, True):
        assert main(["run", str(folder), "--nproc", "2", "--steps", "1", *["--debug"] * debug]) == 1
        err = capfd.readouterr().err
        assert "TypeError: step() missing 1 required positional argument" in err
        assert "RankFailed: rank " in err
        assert ("Traceback" in err) is debug


def test_a_failed_write_keeps_the_older_artefact(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what was there nor half of what was to come is lost or left behind."""
    script = folder.parent / "train.py"
    script.write_text(SCRIPT)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shardc.artefact.folder.save_file", full)
    code, _, err = run("compile", script, "--mesh", "data=4", "-o", folder)
    assert code == 2
    assert f"UnwritableOutput: can't write {folder}: No space left on device" in err
    assert sorted(path.name for path in folder.parent.iterdir() if path.name != "__pycache__") == [
        "out",
        "train.py",
    ]
    assert check_artefact(folder, 1).ranks == 2


def test_a_folder_that_can_not_be_put_in_place(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = folder.parent / "train.py"
    script.write_text(SCRIPT)
    rename = Path.rename

    def rename_but_the_new(self: Path, target: Path) -> Path:
        if self.name.endswith(".new"):
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", rename_but_the_new)
    code, _, err = run("compile", script, "--mesh", "data=4", "-o", folder)
    assert code == 2
    assert "UnwritableOutput: " in err and "Permission denied" in err
    assert sorted(path.name for path in folder.parent.iterdir() if path.name != "__pycache__") == [
        "out",
        "train.py",
    ]
    assert check_artefact(folder, 1).ranks == 2


def test_a_changed_artefact_is_refused_in_python_too(folder: Path) -> None:
    (folder / "program.py").unlink()
    with pytest.raises(BadArtefact, match=r"program\.py is missing"):
        check_artefact(folder, 1)
