"""``shardc explain --fusion``: what a module, an artefact or a script's step fuses, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch_mlir import ir

from shardc.artefact.folder import read_manifest
from shardc.backends.base import Target
from shardc.backends.registry import find_target, known_target, local_target
from shardc.commands.check import register_operators
from shardc.commands.module_file import parse, read_module
from shardc.commands.script import read_script
from shardc.compiler.compilation import Compilation, CompileOptions
from shardc.compiler.fusion_record import FusionRecord
from shardc.compiler.modelled_regions import ModelledRegions
from shardc.diagnostics.api import NotAnArtefact
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.passes.fuse.grouping import explain as fusion
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.grouping.explain import FusionReport
from shardc.passes.fuse.grouping.region import EveryRegion, Region, Verdict
from shardc.passes.manager.pass_pipelines import build, run
from shardc.report.fusion_text import effect, render
from shardc.step.fuse_step import check_matched, step_options
from shardc.text_files import read_text


def explain_path(
    path: Path, forbid: Sequence[str] = (), force: Sequence[str] = (), libraries: Sequence[str] = ()
) -> str:
    """Return the fusion report of an artefact, an MLIR file, or a script's step on one device.

    An artefact is reported as it was compiled. With edges to ``forbid`` or ``force``, the report describes
    fusion under them, after a line on what they change; matmuls of an artefact stay in kernels or calls as
    they are. ``libraries`` register custom operators.

    Raises what reading the path raises, MissingOperator, BadFusionEdge, NoSuchFusionEdge, FusionRefused.
    """
    levels = path / "levels"
    manifest = read_manifest(path) if path.is_dir() else None
    register_operators(manifest, libraries, path)
    if manifest is not None and manifest["kernels"]:
        find = find_target if forbid or force else known_target
        return _artefact(levels, find(manifest["target"]), forbid, force)
    source = _unfused(levels) if path.is_dir() else path
    module = parse(_script_text(path) if path.suffix == ".py" else read_text(source), path)
    if fusion.calls_in_kernels(module):
        raise NotAnArtefact(
            path=path,
            problem="it holds kernels already, so it does not show how they were chosen",
            where=str(path),
        )
    target, constraints = local_target(), FusionConstraints.of(forbid, force)
    report = _explained(module, target, step_options(target, "fused", "auto", constraints))
    said = ["the folder has no kernels; compiled with kernels, it would have these:"] if path.is_dir() else []
    return "\n\n".join([*said, *_under(constraints, report)])


def _explained(
    module: ir.Module, target: Target, options: CompileOptions, without: frozenset[str] = frozenset()
) -> FusionReport:
    options = replace(options, explain=True, libraries=False)
    report = Compilation(lambda: module, target, options).fuse(without).report
    assert report is not None
    return report


def _artefact(levels: Path, target: Target | None, forbid: Sequence[str], force: Sequence[str]) -> str:
    """Report an artefact's fusion. Level 4 gives the kernels; fusing level 3 again gives the reasons."""
    before, after = _unfused(levels), levels / "4-kernel.mlir"
    ranked, fused = read_text(before), read_module(after)
    plain, record = fusion.read_fusion(parse(ranked, before), fused), FusionRecord.read(fused)
    if target is None:
        return "\n\n".join([*_constraints_text(record), render(plain)])
    if forbid or force:
        record = record.with_constraints(forbid, force)
    choose = partial(
        _as_it_is,
        fusion.calls_in_kernels(fused),
        fusion.losses_in_kernels(fused),
        ModelledRegions(target, record.rounding, record.tf32) if target.is_modelled else None,
        dict(record.verdicts),
    )
    constraints = record.constraints()
    options = CompileOptions(record.rounding, EveryRegion(choose), constraints, tuned=False)
    why = _explained(parse(ranked, before), target, options, frozenset(record.without))
    if forbid or force:
        return "\n\n".join(_under(constraints, why))
    if why.kernels == plain.kernels:
        return "\n\n".join([*_constraints_text(record), render(why)])
    unlike = f"this version of shardc fuses levels/{before.name} differently"
    said = f"{unlike}, so the reasons for these kernels are not known"
    return "\n\n".join([*_constraints_text(record), said, render(plain)])


def _unfused(levels: Path) -> Path:
    """Return the file of the program that was fused to level 4."""
    pipeline = levels / "3-pipeline.mlir"
    return pipeline if pipeline.is_file() else levels / "3-rank.mlir"


def _as_it_is(
    inside: frozenset[str],
    losses: frozenset[str],
    model: ModelledRegions | None,
    measured: Mapping[str, str],
    region: Region,
) -> Verdict:
    """Repeat the compiled choice, with its measurement or the model's estimate as the reason."""
    found = [measured[call] for call in region.calls if call in measured]
    why = found[0] if found else "as it was compiled" if model is None else model(region).why
    return Verdict(not (losses if region.spared_bytes else inside).isdisjoint(region.calls), why)


def _constraints_text(record: FusionRecord) -> list[str]:
    edges = [f"{what} {edge}" for what in ("forbid", "force") for edge in getattr(record, what)]
    return [f"compiled with: {', '.join(edges)}"] if edges else []


def _under(constraints: FusionConstraints, report: FusionReport) -> list[str]:
    """Return the report of fusion under constraints. Raises NoSuchFusionEdge."""
    check_matched(constraints)
    return [*([effect(report)] if constraints else []), render(report)]


def _script_text(path: Path) -> str:
    """Return the text of a script's step for one device, at level 1."""
    training = read_script(path)
    model, optimizer, batch = training.model, training.optimizer, training.batch
    with training.asks():
        capture = capture_step(model, optimizer, batch, loss=training.loss, context=new_context())
    run(capture.module, build("torch-lift-bmm,torch-lift-experts,torch-share"))
    return capture.module.operation.get_asm(enable_debug_info=True)
