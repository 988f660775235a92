"""Writing of artefacts: their files, refused folders, and no loss of existing files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch_mlir import ir

from shardc.artefact.folder import read_manifest, write_artefact
from shardc.artefact.manifest import ManifestFields, build_manifest, describe_batch, fingerprint
from shardc.backends.torch.emit import emit_program
from shardc.commands.run import run_artefact
from shardc.diagnostics.runtime import BadArtefact, MeshSizeMismatch, NotOurFolder
from shardc.frontend.step.batch import flatten_batch
from shardc.runtime.batch import leaves_of

HERE = Path(__file__).parent
FIELDS = ManifestFields(
    model=fingerprint("level 1"),
    batch={"mapping": {"x": {"leaf": "x"}}},
    hyperparameters=[
        {"name": "group0.lr", "group": 0, "key": "lr", "index": None, "first_step": None, "value": 0.1}
    ],
    seed=5,
    fills={"steps": 0.0},
)


@pytest.fixture
def module(context: ir.Context) -> ir.Module:
    return ir.Module.parse((HERE / "two_layer.mlir").read_text())


@pytest.fixture
def folder(tmp_path: Path, module: ir.Module) -> Path:
    out = tmp_path / "deep" / "out"
    write(out, module)
    return out


def write(out: Path, module: ir.Module) -> None:
    weight = torch.randn(6, 8, dtype=torch.float64)
    state = {"up.weight": weight, "down.weight": weight[:, :3].t().contiguous(), "steps": None}
    constants = {"constant0": torch.ones((), dtype=torch.float64)}
    levels = {"1-global": "level 1", "3-rank": str(module)}
    write_artefact(
        out,
        levels,
        emit_program(module),
        build_manifest(module, FIELDS, ""),
        plan={"preset": "data"},
        constants=constants,
        state=state,
        batches=[{"x": torch.zeros(2)}, {"x": torch.ones(2)}],
    )


def test_what_is_in_the_folder(folder: Path) -> None:
    names = {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
    assert names == {
        "shardc.json",
        "program.py",
        "plan.json",
        "levels",
        "constants.safetensors",
        "state.safetensors",
        "batches.safetensors",
        "runtime",
        "run.py",
        "README",
    }
    assert "is code" in (folder / "README").read_text()
    assert set(load_file(folder / "batches.safetensors")) == {"0/x", "1/x"}
    assert set(load_file(folder / "state.safetensors")) == {"up.weight", "down.weight"}
    assert (folder / "levels" / "1-global.mlir").read_text() == "level 1"
    assert [p.name for p in folder.parent.iterdir()] == ["out"], "temporary folders are gone"


def test_manifest(folder: Path) -> None:
    manifest = read_manifest(folder, FIELDS.model)
    assert manifest["schema"] == {"name": "shardc-artefact", "version": 4}
    assert [a["name"] for a in manifest["mesh"]] == ["data", "tensor", "micro"]
    up, _, steps, _, x, *_ = manifest["arguments"]
    assert (up["name"], up["role"], up["shape"], up["dtype"]) == ("up.weight", "param", [6, 8], "float64")
    assert up["sharding"] == {"dims": [[], [["tensor", 1, 2]]], "partial": []}
    assert x["sharding"]["dims"][0] == [["data", 1, 2], ["micro", 1, 2]]
    assert "fill" not in up and steps["fill"] == 0.0
    assert [r["role"] for r in manifest["results"]] == ["loss", "param", "param", "buffer", "output"]
    assert set(manifest["files"]) >= {"program.py", "runtime/step.py", "state.safetensors"}


def test_an_older_artefact_is_replaced(folder: Path, module: ir.Module) -> None:
    (folder / "runtime" / "__pycache__").mkdir()
    (folder / "runtime" / "__pycache__" / "step.pyc").write_text("")
    before = load_file(folder / "state.safetensors")["up.weight"]
    write(folder, module)
    assert not torch.equal(load_file(folder / "state.safetensors")["up.weight"], before)
    assert not (folder / "runtime" / "__pycache__").exists()


def test_a_folder_with_something_else_is_not_touched(tmp_path: Path, module: ir.Module) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotOurFolder, match="holds no artefact of shardc; it is not overwritten"):
        write(tmp_path, module)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_checkpoint_inside_an_artefact_is_not_lost(folder: Path, module: ir.Module) -> None:
    (folder / "step10").mkdir()
    (folder / "step10" / ".metadata").write_text("mine")
    with pytest.raises(NotOurFolder, match=r"holds step10/\.metadata, which shardc did not write"):
        write(folder, module)
    assert (folder / "step10" / ".metadata").read_text() == "mine"
    assert (folder / "program.py").exists()


def test_a_file_is_no_folder(tmp_path: Path, module: ir.Module) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(NotOurFolder, match="is not a folder"):
        write(tmp_path / "out", module)


def test_nothing_is_written_if_the_program_cannot_be(tmp_path: Path, context: ir.Context) -> None:
    with pytest.raises(ValueError, match="level 3"):
        write(tmp_path / "out", ir.Module.parse("module {}"))
    assert list(tmp_path.iterdir()) == []


def damage_manifest(folder: Path, change: object) -> None:
    path = folder / "shardc.json"
    manifest = json.loads(path.read_text())
    change(manifest)  # type: ignore[operator]
    path.write_text(json.dumps(manifest))


def test_another_version_is_refused(folder: Path) -> None:
    damage_manifest(folder, lambda m: m["schema"].update(version=7))
    with pytest.raises(BadArtefact, match="version 7; this runtime reads version 4"):
        read_manifest(folder)


def test_a_missing_field_is_named(folder: Path) -> None:
    damage_manifest(folder, lambda m: m.pop("arguments"))
    with pytest.raises(BadArtefact, match="the manifest is damaged: it has no 'arguments'"):
        read_manifest(folder)


def test_a_truncated_manifest_is_named(folder: Path) -> None:
    path = folder / "shardc.json"
    path.write_text(path.read_text()[:500])
    with pytest.raises(BadArtefact, match="manifest is truncated or not JSON") as refused:
        run_artefact(folder, 4, 1)
    assert str(path) in str(refused.value)


def test_a_truncated_file_is_named(folder: Path) -> None:
    path = folder / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(BadArtefact, match=r"state.safetensors is truncated: \d+ bytes of \d+"):
        run_artefact(folder, 4, 1)


def test_a_changed_file_is_named(folder: Path) -> None:
    path = folder / "program.py"
    path.write_text(path.read_text().replace("mm", "MM"))
    with pytest.raises(BadArtefact, match=r"program.py was changed since it was compiled"):
        run_artefact(folder, 4, 1)


def test_another_model_is_refused(folder: Path) -> None:
    with pytest.raises(BadArtefact, match="compiled from another model or batch"):
        read_manifest(folder, fingerprint("another"))


def test_a_folder_without_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArtefact, match="no manifest"):
        read_manifest(tmp_path)


def test_wrong_number_of_processes_names_both(folder: Path) -> None:
    with pytest.raises(MeshSizeMismatch, match=r"mesh of 4 ranks \(data 2 x tensor 2\), not for 3 processes"):
        run_artefact(folder, 3, 1)


@pytest.mark.parametrize(
    "batch",
    [
        {"ids": torch.ones(2), "deep": {"a": (torch.zeros(1), None, 3)}, "flag": True},
        [torch.ones(2), {"x": torch.zeros(3), "kind": torch.float32}],
        torch.ones(4),
    ],
)
def test_batch_trees_of_the_frontend_are_read_back(batch: object) -> None:
    tensors, tree = flatten_batch(batch)
    described = json.loads(json.dumps(describe_batch(tree)))
    found = leaves_of(batch, described)
    assert list(found) == list(tree.names)
    assert all(a is b for a, b in zip(found.values(), tensors, strict=True))
