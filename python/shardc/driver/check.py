"""``shardc check``: an artefact proved equal to the single-device program it was made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch_mlir import ir

from shardc.backends.eager.compare import compare_step
from shardc.backends.eager.comparison import Comparison
from shardc.backends.torch.emit import emit_program
from shardc.diagnostics.runtime import BadArtefact
from shardc.dialects.context import new_context
from shardc.driver.artefact import read_manifest


@dataclass(frozen=True)
class CheckReport:
    """The proof in f64 (to 1e-9), and the same programs in their own precision within its bounds.

    ``program_is_current`` says whether the folder's ``program.py`` is what its level-3 module emits.
    """

    exact: Comparison
    own: Comparison
    program_is_current: bool

    @property
    def passed(self) -> bool:
        return self.exact.passed and self.own.passed and self.program_is_current

    def render(self) -> str:
        lines = ["in float64:", self.exact.render(limit=8), "", "in the program's own precision:", self.own.render(limit=8), ""]
        if not self.program_is_current:
            lines.append("program.py is not what levels/3-rank.mlir emits: it was changed by hand")
        lines.append("equal to the single-device program" if self.passed else "NOT equal to the single-device program")
        return "\n".join(lines)


def check_artefact(folder: Path, steps: int) -> CheckReport:
    """Run levels 1 and 3 of an artefact on its stored state and first batch and compare them."""
    manifest = read_manifest(folder)
    context = new_context()
    whole, ranked = (_level(folder, name, context) for name in ("1-global", "3-rank"))
    inputs = stored_inputs(folder, manifest)
    exact = compare_step(whole, ranked, inputs, steps=steps)
    own = compare_step(whole, ranked, inputs, steps=steps, widen=False)
    return CheckReport(exact, own, emit_program(ranked) == (folder / "program.py").read_text())


def _level(folder: Path, name: str, context: ir.Context) -> ir.Module:
    return ir.Module.parse((folder / "levels" / f"{name}.mlir").read_text(), context)


def stored_inputs(folder: Path, manifest: dict[str, Any]) -> dict[tuple[str, str], torch.Tensor]:
    """A tensor for each argument from the artefact's files. Raises BadArtefact if it carries no initial values."""
    state_file = folder / "state.safetensors"
    if not state_file.exists():
        raise BadArtefact(
            problem="the artefact carries no initial values (its model was on the meta device)",
            hint="compile a smaller model of the same family with real weights to check the plan",
            where=str(folder),
        )
    stored = {**load_file(state_file), **load_file(folder / "constants.safetensors")}
    batches = load_file(folder / "batches.safetensors")
    hyper = {h["name"]: h["value"] if h["first_step"] is None else h["first_step"] for h in manifest["hyperparameters"]}
    values: dict[tuple[str, str], torch.Tensor] = {}
    for entry in manifest["arguments"]:
        role, name, dtype = entry["role"], entry["name"], getattr(torch, entry["dtype"])
        if role == "input":
            value = batches[f"0/{name}"]
        elif role == "hyper":
            value = torch.tensor(hyper[name])
        elif role == "seed":
            value = torch.tensor(manifest["seed"])
        else:
            value = stored[name]
        values[role, name] = value.to(dtype)
    return values
