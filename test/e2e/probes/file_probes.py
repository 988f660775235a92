"""Probes of files: each file, damaged in each way, for each of its readers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from api_probes import compiled, step_model
from command_probes import checked, made
from probe import Probe

import shardc
from shardc.dialects.pipe.csv_form import write_csv
from shardc.passes.pipeline.schedules.by_name import schedule
from shardc.runtime.step import TrainStep

DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "garbled": lambda path: path.write_bytes(bytes(b ^ 0x55 for b in path.read_bytes())),
    "a list": lambda path: path.write_text("[1]"),
    "an object": lambda path: path.write_text("{}"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "of another version": lambda path: path.write_text(
        path.read_text(errors="replace").replace('"version": ', '"version": 9')
    ),
}
"""What happens to a file."""


def written(folder: Path) -> None:
    """Write every file that is read, whole."""
    made(folder)
    step = compiled()
    step.save_plan(folder / "plan.json")
    step.save_checkpoint(folder / "checkpoint")
    shardc.export_weights(step, step_model(step), folder / "hf")
    shardc.export_weights(step, step_model(step), folder / "shards", shard_bytes=1)
    (folder / "points.json").write_text(json.dumps({"pin": {}}))
    (folder / "order.csv").write_text(write_csv(schedule("1f1b", 4, 8)))
    checked(["schedule", "1f1b", "--trace", f"{folder}/trace.json"])


def file_probes(folder: Path) -> Iterator[Probe]:
    """Each file of ``READERS``, by its path below ``folder``, damaged in each way, and what reads it."""
    for name, readers in READERS.items():
        for label, damage in DAMAGE.items():
            for number, reader in enumerate(readers):
                call = lambda n=name, d=damage, r=reader: _on(folder, n, d, r)  # noqa: E731
                yield Probe(f"{name} {label}, reader {number}", call)


def _on(folder: Path, name: str, damage: Callable[[Path], object], reader: Callable[[Path], object]) -> None:
    """Read a copy of the folder in which a file is damaged."""
    copy = folder / "damaged"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("damaged", "new", "work"))
    damage(copy / name)
    reader(copy)


def command(*line: str) -> Callable[[Path], object]:
    """A reader that runs a command, in which {} is the folder."""
    return lambda folder: checked([word.format(folder) for word in line])


def loaded(folder: Path) -> None:
    """Load the artefact and run a step of it."""
    step: Any = TrainStep.load(folder / "out", device="cpu")
    step.load_checkpoint(folder / "checkpoint")


ARTEFACT = [
    command("check", "{}/out", "--steps", "1"),
    command("explain", "{}/out"),
    command("run", "{}/out", "--nproc", "1"),
    loaded,
]
FUSED = [command("tune", "{}/fused", "--space"), command("explain", "{}/fused", "--fusion")]
COMPILE = ("compile", "{}/train.py", "--mesh", "data=1", "--no-fuse", "-o", "{}/new")
WEIGHTS = [
    lambda folder: compiled(state=shardc.read_weights(folder / "hf")).running,
    lambda folder: compiled(state=shardc.read_weights(folder / "shards")).running,
]
READERS: dict[str, Sequence[Callable[[Path], object]]] = {
    "out/shardc.json": ARTEFACT,
    "out/program.py": ARTEFACT,
    "out/levels/1-global.mlir": [*ARTEFACT, command("opt", "{}/out/levels/1-global.mlir", "--cse")],
    "out/levels/3-rank.mlir": ARTEFACT,
    "out/state.safetensors": ARTEFACT,
    "out/batches.safetensors": ARTEFACT,
    "out/constants.safetensors": ARTEFACT,
    "fused/shardc.json": FUSED,
    "fused/levels/4-kernel.mlir": [*FUSED, command("tune", "{}/fused/levels/4-kernel.mlir", "--space")],
    "train.py": [command(*COMPILE), command("explain", "{}/train.py", "--fusion")],
    "plan.json": [command(*COMPILE, "--plan", "{}/plan.json")],
    "trials.jsonl": [command("trials", "import", "{}/trials.jsonl")],
    "points.json": [command("tune", "{}/fused", "--space", "--points", "{}/points.json")],
    "order.csv": [command("schedule", "{}/order.csv")],
    "trace.json": [command("schedule", "1f1b", "--times-of", "{}/trace.json")],
    "checkpoint/.metadata": [loaded, command("run", "{}/out", "--nproc", "1", "--load", "{}/checkpoint")],
    "hf/model.safetensors": WEIGHTS[:1],
    "shards/model.safetensors.index.json": WEIGHTS[1:],
    "shards/model-00001-of-00004.safetensors": WEIGHTS[1:],
}
"""Each file that is read, and what reads it."""
