"""``shardc explain``: origins of shardings, and the places and bytes of collectives."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from torch_mlir import ir

from shardc.artefact.folder import read_kernels, read_manifest
from shardc.artefact.manifest import Manifest
from shardc.backends.registry import known_target
from shardc.commands.check import register_operators
from shardc.commands.module_file import read_module
from shardc.compiler.fusion_record import FusionRecord
from shardc.diagnostics.api import NameNotFound, NotAnArtefact
from shardc.diagnostics.cli import MalformedMlir
from shardc.diagnostics.runtime import BadArtefact
from shardc.diagnostics.text import table
from shardc.passes.manager.program import find_function
from shardc.report.device_work import device_work
from shardc.report.memory_text import explain_pipeline, peak_text
from shardc.report.origin_text import origin_text
from shardc.report.plan_report import Report, make_report
from shardc.report.roofline import roofline
from shardc.report.source_lines import shown
from shardc.report.traffic import UPDATE, Transfer, named_transfers
from shardc.runtime.check import AGAIN
from shardc.runtime.kernels.loaders import Kernels


def explain(path: Path, what: str | None = None, libraries: Sequence[str] = ()) -> str:
    """Return the report of an artefact or a level-3 module, with a line per argument and per collective.

    If the target has a cost model, the report of an artefact also gives each kernel's estimate beside its
    roofline.

    Args:
        path: Folder of an artefact, or an MLIR file of level 3.
        what: Only arguments whose name contains this text. Default: all arguments and collectives.
        libraries: Modules or files to import first, which register custom operators.

    Raises:
        BadArtefact, MalformedMlir, UnreadableInput, NotAnArtefact: The path cannot be read.
        MissingOperator: An operator of the program is not registered.
        NameNotFound: No argument's name contains ``what``.
    """
    manifest = read_manifest(path) if path.is_dir() else None
    register_operators(manifest, libraries, path)
    levels, kernels = path / "levels", manifest["kernels"] if manifest else []
    plan, stages = _plan_texts(path / "plan.json") if manifest else ("?", "")
    rank_path = levels / "3-rank.mlir" if manifest else path
    module = _parsed(rank_path)  # before it was cut into stages
    if (problem := _level_problem(module)) is not None:
        raise NotAnArtefact(path=rank_path, problem=problem, where=str(rank_path))
    if what is not None:
        report = make_report(module, plan, [], kernels=kernels)
        return "\n\n".join([report.title(), _arguments(report, what, path)])
    cut, library = levels / "3-pipeline.mlir", _library(path, manifest)
    program = _parsed(levels / "4-kernel.mlir") if kernels else _parsed(cut) if cut.is_file() else module
    pipeline = explain_pipeline(program, library)
    peak = "" if pipeline is not None else peak_text(program, library)
    work = device_work(_parsed(levels / "1-global.mlir"), module, stages) if manifest else None
    report = make_report(module, plan, [], kernels=kernels, peak=peak, pipeline=pipeline, work=work)
    parts = [report.render(), _arguments(report, "", path), _collectives(named_transfers(module))]
    target = known_target(manifest["target"]) if manifest else None
    if target is not None and target.is_modelled:
        found = target.estimate(program, FusionRecord.read(program).tf32)
        parts.append("\n".join(roofline(found, target)))
    return "\n\n".join(parts)


def _library(path: Path, manifest: Manifest | None) -> Kernels | None:
    """Load an artefact's host kernels; None if they do not run on this machine."""
    try:
        return None if manifest is None else read_kernels(path, manifest)
    except BadArtefact:
        return None


def _parsed(path: Path) -> ir.Module:
    try:
        return read_module(path)
    except MalformedMlir as error:
        if path.suffix == ".mlir":
            raise
        problem = f"it is not MLIR ({error.fields['message']})"
        raise NotAnArtefact(path=path, problem=problem, where=error.where) from error


def _plan_texts(path: Path) -> tuple[str, str]:
    """Return the plan as text, and the mesh axis of a pipeline's stages (empty without a pipeline)."""
    try:
        plan = json.loads(path.read_text())
        return str(plan["text"]), str(plan.get("pipeline", ""))
    except (ValueError, KeyError, TypeError) as error:
        raise BadArtefact(
            problem=f"plan.json is not a plan ({error!r})", hint=AGAIN, where=str(path)
        ) from error


def _level_problem(module: ir.Module) -> str | None:
    """Say why a module is not at level 3; None if it is."""
    function = find_function(module)
    if function is None:
        return "it has no function"
    edges = list(function.attributes["arg_attrs"]) if "arg_attrs" in function.attributes else []
    if not edges or any("dist.sharding" not in a or "dist.global_type" not in a for a in edges):
        return "its arguments have no dist.sharding and dist.global_type, so it was not partitioned"
    if any(op.operation.name == "dist.reshard" for op in function.regions[0].blocks[0].operations):
        return "it holds dist.reshard, so it was not partitioned"
    return None


def _arguments(report: Report, what: str, path: Path) -> str:
    chosen = [row for row in report.shardings if what in row[1]]
    if not chosen:
        raise NameNotFound(name=what, path=path, nearest=", ".join(_nearest(what, report)))
    title = "arguments: role, name, global shape, axes of each dim (* = whole), origin"
    rows = [(*row, origin_text(row[-1], row[1], row[2])) for row in chosen]
    return "\n".join([title, *table([(*row[:-2], row[-1]) for row in rows])])


def _nearest(what: str, report: Report) -> list[str]:
    """Return parts of names similar to ``what`` (``q_proj`` for ``q_prj``), else whole names."""
    names = [name for _, name, _, _, _ in report.shardings]
    parts = sorted({part for name in names for part in re.split(r"[./]", name)})
    near = difflib.get_close_matches(what, parts, n=3)
    return near or difflib.get_close_matches(what, names, n=3, cutoff=0.0)


def _collectives(found: list[Transfer]) -> str:
    columns = "phase, kind, axes, local shape, count, bytes that each device sends in total"
    rows = table([_row(t) for t in found], right=(4, 5)) if found else ["  none"]
    return "\n".join([f"collectives in order: {columns}, parameters in it, source line", *rows])


def _row(t: Transfer) -> tuple[str, ...]:
    shape, sent = "x".join(map(str, t.type.shape)) or "scalar", f"{t.bytes_moved:,.0f} B"
    return t.phase or UPDATE, t.kind, "+".join(t.axes), shape, f"{t.times} x", sent, t.what, shown(t.where)
