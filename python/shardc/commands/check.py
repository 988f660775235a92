"""``shardc check``: compares an artefact with the single-device program that it was compiled from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch_mlir import ir

from shardc.artefact.folder import read_kernels, read_manifest
from shardc.artefact.manifest import Manifest
from shardc.backends.eager.proof.compare import prove_step
from shardc.backends.eager.proof.comparison import Proof
from shardc.backends.eager.proof.stale_weights import asynchronous_schedule
from shardc.backends.torch.check_program import check_program
from shardc.backends.torch.description import describe_program
from shardc.backends.torch.emit import emit_program
from shardc.diagnostics.api import NotTheProgram
from shardc.diagnostics.runtime import BadArtefact, MissingOperator
from shardc.dialects.context import new_context
from shardc.passes.manager.mlir_errors import Source, parse_module
from shardc.runtime.check import AGAIN, MANIFEST, sha256
from shardc.runtime.errors import RuntimeFailure
from shardc.runtime.operators.registered import check_operators, import_library

PROGRAM = "program.py"
SMALLER = "compile a smaller model of the same family with real weights and a real batch to check the plan"


@dataclass(frozen=True)
class CheckReport:
    """Result of running an artefact's levels.

    ``ranks`` and ``steps``: how much of the rank program at ``level`` ran. ``changed`` describes how
    ``program.py`` differs from the program that ``level`` emits; None if it does not.
    """

    proof: Proof
    ranks: int
    steps: int
    changed: str | None
    level: str = "3-rank"

    @property
    def passed(self) -> bool:
        return self.proof.passed and self.changed is None

    def render(self) -> str:
        level = f"levels/{self.level}.mlir"
        ran = f"{level} on {self.ranks} simulated ranks, {self.steps} steps"
        parts = [
            f"levels/1-global.mlir on one device, {ran}",
            self.proof.render(),
            f"{PROGRAM}: {self.changed or f'is what {level} emits'}",
            f"{'equal' if self.passed else 'NOT equal'} to {self.proof.wanted}",
        ]
        return "\n\n".join(parts)


def check_artefact(folder: Path, steps: int, libraries: Sequence[str] = ()) -> CheckReport:
    """Run level 1 and the rank program of an artefact, on its stored state and first batch, and compare them.

    In the program's own precision its compiled kernels run; in f64 their level-4 bodies run.

    Args:
        folder: Folder of the artefact. A changed ``program.py`` is a finding of the report, not an error.
        steps: Training steps to compare.
        libraries: Modules or files to import first, which register the program's custom operators.

    Raises:
        MissingOperator: An operator of the program is not registered.
        BadArtefact: The folder is damaged or has no values to run on.
        NotTheProgram: The manifest does not describe the rank program.
        RankProgramBroken: A pipeline's rank program does not follow its schedule.
    """
    manifest = read_manifest(folder, unchecked=(PROGRAM,))
    register_operators(manifest, libraries, folder)
    context = new_context()
    level = "4-kernel" if manifest["kernels"] else "3-pipeline" if manifest["pipeline"] else "3-rank"
    whole, ranked = (_level(folder, name, context) for name in ("1-global", level))
    _check_manifest(folder, manifest, describe_program(ranked), level)
    inputs = stored_inputs(folder, manifest)
    uncut = _level(folder, "3-rank", context) if asynchronous_schedule(ranked) else None
    library = read_kernels(folder, manifest)
    proof = prove_step(whole, ranked, inputs, steps=steps, library=library, uncut=uncut)
    ranks = prod(axis["size"] for axis in manifest["mesh"] if axis["kind"] == "space")
    emitted = emit_program(ranked)
    check_program(emitted, ranked)
    changed = _changed(folder / PROGRAM, emitted, manifest, level)
    return CheckReport(proof, ranks, steps, changed, level)


def register_operators(manifest: Manifest | None, libraries: Sequence[str], folder: Path) -> None:
    """Import ``libraries``. Raises MissingOperator if that leaves an operator of the program unregistered."""
    try:
        for library in libraries:
            import_library(library)
        if manifest is not None:
            check_operators(manifest)
    except RuntimeFailure as failure:
        where = failure.where or str(folder)
        raise MissingOperator(problem=failure.what, hint=failure.hint, where=where) from None


def _level(folder: Path, name: str, context: ir.Context) -> ir.Module:
    path = folder / "levels" / f"{name}.mlir"
    if not path.is_file():
        raise BadArtefact(problem=f"levels/{name}.mlir is missing", hint=AGAIN, where=str(path))
    return parse_module(Source(str(path), path.read_text()), context)


def _check_manifest(folder: Path, manifest: Manifest, program: Manifest, level: str) -> None:
    """Raise NotTheProgram if the manifest and the rank program differ."""
    for field, expected in program.items():
        problem = _difference(field, manifest[field], expected)
        if problem is not None:
            raise NotTheProgram(problem=problem, level=level, where=str(folder / MANIFEST))


def _difference(field: str, held: list[Manifest], expected: list[Manifest]) -> str | None:
    names, wanted = ([entry["name"] for entry in entries] for entries in (held, expected))
    if names != wanted:
        changed = ", ".join(sorted(set(names) ^ set(wanted))) or "order"
        return f"its {field} are {len(names)}, the program's {len(wanted)}; they differ in {changed}"
    for entry, right in zip(held, expected, strict=True):
        for key, value in right.items():
            if (found := entry.get(key)) != value:
                return f"{field} {right['name']!r}: {key} is {found!r} there and {value!r} in the program"
    return None


def _changed(path: Path, emitted: str, manifest: Manifest, level: str) -> str | None:
    """Describe the first difference from the emitted program; None if there is none."""
    expected, found = emitted.splitlines(), path.read_text(errors="replace").splitlines()
    for number, (right, line) in enumerate(zip(expected, found, strict=False), 1):
        if line not in (right, right.partition("  # ")[0]):  # older versions wrote no types after calls
            said = f"line {number} is {line.strip()!r}, levels/{level}.mlir emits {right.strip()!r}"
            return f"was changed: {said}"
    if len(expected) != len(found):
        return f"was changed: it has {len(found)} lines, levels/{level}.mlir emits {len(expected)}"
    if sha256(path) != manifest["files"][PROGRAM]["sha256"]:
        return f"has another SHA-256 than {MANIFEST} says, so shardc run will refuse it"
    return None


def stored_inputs(folder: Path, manifest: Manifest) -> dict[tuple[str, str], torch.Tensor]:
    """Return a tensor for each argument from the artefact's files. Raises BadArtefact if one is missing."""
    stored = _tensors(folder / "constants.safetensors")
    if (folder / "state.safetensors").exists():
        stored |= _tensors(folder / "state.safetensors")
    batches, numbers = _tensors(folder / "batches.safetensors"), manifest["hyperparameters"]
    hyper = {h["name"]: h["value"] if h.get("first_step") is None else h["first_step"] for h in numbers}
    values: dict[tuple[str, str], torch.Tensor] = {}
    for entry in manifest["arguments"]:
        role, name, dtype = entry["role"], entry["name"], getattr(torch, entry["dtype"])
        if role == "input":
            value = batches.get(f"0/{name}")
        elif role == "hyper":
            value = torch.tensor(hyper[name], dtype=torch.float64) if name in hyper else None
        elif role == "seed":
            value = torch.tensor(manifest["seed"])
        else:
            value = stored.get(name)
        if value is None or list(value.shape) != entry["shape"]:
            what = f"no value of shape {entry['shape']} for the {role} {name!r}"
            problem = f"the artefact holds {what}; was its model on the meta device?"
            raise BadArtefact(problem=problem, hint=SMALLER, where=str(folder))
        values[role, name] = value.to(dtype)
    return values


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        problem = f"{path.name} can't be read: {error}"
        raise BadArtefact(problem=problem, hint=AGAIN, where=str(path)) from error
