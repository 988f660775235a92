"""Fusion explained: of a module, an artefact or a script (``shardc explain --fusion``),
and of a function under ``torch.compile``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config
from torch_mlir import ir

from shardc.backends.triton.targets import TARGETS, Target
from shardc.diagnostics.api import NotAnArtefact
from shardc.diagnostics.fusion import NoSuchFusionEdge
from shardc.dialects.context import new_context
from shardc.driver.artefact import read_manifest
from shardc.driver.dynamo import shardc_backend
from shardc.driver.fusion import collect_fusion
from shardc.driver.fusion_record import FusionRecord
from shardc.driver.fusion_report import effect, render
from shardc.driver.gpu_estimates import Estimator
from shardc.driver.mlir_errors import Source, parse_module
from shardc.driver.module_file import read_module, read_text
from shardc.driver.piece_model import ModelledMatmuls
from shardc.driver.pipelines import build, run
from shardc.driver.script import read_script
from shardc.driver.step_kernels import step_matmuls
from shardc.driver.tuned import use_tuned
from shardc.frontend.capture import capture_step
from shardc.passes.fuse.explain import (
    FusionReport,
    calls_in_kernels,
    losses_in_kernels,
    read_fusion,
    with_tuned,
)
from shardc.passes.fuse.explain import explain_fusion as explain_module
from shardc.passes.fuse.piece import EveryPiece, Piece, Verdict
from shardc.passes.fuse.wishes import Wishes


@dataclass(frozen=True)
class FusionExplanation:
    """The reports of the graphs of one function, with their phases; printed, they are its explanation."""

    graphs: list[tuple[str, FusionReport]]

    def __str__(self) -> str:
        parts = [f"{phase}: {render(report)}" for phase, report in self.graphs]
        return (
            "\n\n".join(parts)
            if parts
            else "no graph was fused: kernels are made for CPU tensors of fixed sizes"
        )


def explain_fusion(
    function: Callable[..., Any], *args: Any, options: Mapping[str, Any] | None = None, **kwargs: Any
) -> FusionExplanation:
    """What ``torch.compile(function, backend="shardc", options=options)`` fuses when called with these arguments, and
    why.

    Compiles and calls ``function`` (a module, or a function of tensors) once. The backward graph is there if some
    result needs gradients. Raises BadBackendOption, BadFusionEdge, FusionRefused (inside what Dynamo makes of a
    backend's errors).
    """
    inner = getattr(function, "_orig_mod", function)

    def backend(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return shardc_backend(graph, example_inputs, options=options)

    with collect_fusion() as graphs, torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
        torch.compile(inner, backend=backend, dynamic=False)(*args, **kwargs)
    return FusionExplanation(graphs)


def explain_path(path: Path, forbid: Sequence[str] = (), force: Sequence[str] = ()) -> str:
    """The report of an artefact's level 4, or of what fusing the step in an MLIR file, or a script's on one device,
    would give.

    With edges to ``forbid`` or ``force`` it is that of fusion under them, after a line that says what they change. An
    artefact's matmuls stay in kernels, and calls, as they are. Raises what reading the path raises, BadFusionEdge,
    NoSuchFusionEdge, FusionRefused.
    """
    manifest = read_manifest(path) if path.is_dir() else {"kernels": []}
    if manifest["kernels"]:
        return _artefact(path / "levels", TARGETS.get(manifest["target"]), forbid, force)
    text = (
        _script_text(path)
        if path.suffix == ".py"
        else read_text(_unfused(path / "levels") if path.is_dir() else path)
    )
    wishes, matmuls = Wishes.of(forbid, force), step_matmuls("fused")
    module = _parsed(text, path)
    if calls_in_kernels(module):
        raise NotAnArtefact(path=path, problem="it holds kernels, so it is at level 4", where=str(path))
    plain = explain_module(module, matmuls=matmuls)
    use_tuned(module)
    plain = with_tuned(plain, module)
    said = ["the folder has no kernels; with them it would be as follows"] if path.is_dir() else []
    if not wishes:
        return "\n\n".join([*said, render(plain)])
    wished = explain_module(_parsed(text, path), wishes=wishes, matmuls=matmuls)
    return "\n\n".join([*said, *_under(wishes, plain, wished)])


def _artefact(levels: Path, target: Target | None, forbid: Sequence[str], force: Sequence[str]) -> str:
    """Level 4 says which kernels there are. Why, level 3 says, where fusing it again makes the same ones."""
    before, after = _unfused(levels), levels / "4-kernel.mlir"
    ranked, fused = read_text(before), read_module(after)
    plain = read_fusion(_parsed(ranked, before), fused)
    record, inside, losses = FusionRecord.read(fused), calls_in_kernels(fused), losses_in_kernels(fused)
    model = ModelledMatmuls(Estimator(target, record.tf32), record.numerics) if target else None

    def again(record: FusionRecord, wishes: Wishes) -> FusionReport:
        matmuls = EveryPiece(partial(_as_it_is, inside, losses, model, dict(record.verdicts)))
        return explain_module(
            _parsed(ranked, before), record.numerics, without=frozenset(record.without), wishes=wishes, matmuls=matmuls,
            for_gpu=target is not None,
        )  # fmt: skip

    if forbid or force:
        record = record.and_wished(forbid, force)
        wishes = record.wishes()
        return "\n\n".join(_under(wishes, plain, again(record, wishes)))
    why = again(record, record.wishes())
    if why.kernels == plain.kernels:
        return "\n\n".join([*_wished(record), render(why)])
    unlike = f"this version of shardc fuses levels/{before.name} otherwise, so it does not say why these are the kernels"
    return "\n\n".join([*_wished(record), unlike, render(plain)])


def _unfused(levels: Path) -> Path:
    """What level 4 is made of."""
    pipeline = levels / "3-pipeline.mlir"
    return pipeline if pipeline.is_file() else levels / "3-rank.mlir"


def _as_it_is(
    inside: frozenset[str],
    losses: frozenset[str],
    model: ModelledMatmuls | None,
    measured: Mapping[str, str],
    piece: Piece,
) -> Verdict:
    """What was chosen; for a GPU also what was measured, or is estimated."""
    found = [measured[call] for call in piece.calls if call in measured]
    why = found[0] if found else "as it was compiled" if model is None else model(piece).why
    return Verdict(not (losses if piece.spared_bytes else inside).isdisjoint(piece.calls), why)


def _wished(record: FusionRecord) -> list[str]:
    edges = [f"{what} {edge}" for what in ("forbid", "force") for edge in getattr(record, what)]
    return [f"compiled with: {', '.join(edges)}"] if edges else []


def _under(wishes: Wishes, plain: FusionReport, wished: FusionReport) -> list[str]:
    """The report of fusion under wishes. Raises NoSuchFusionEdge."""
    for edge in sorted(wishes.unmatched):
        raise NoSuchFusionEdge(edge=edge)
    return [effect(plain, wished), render(wished)]


def _parsed(text: str, path: Path) -> ir.Module:
    return parse_module(Source(str(path), text), new_context())


def _script_text(path: Path) -> str:
    """The step that a script builds, for one device."""
    training = read_script(path)
    with training.asks():
        capture = capture_step(
            training.model, training.optimizer, training.batch, loss=training.loss, context=new_context()
        )
    run(capture.module, build("torch-lift-bmm,torch-share"))
    return capture.module.operation.get_asm(enable_debug_info=True)
