"""``shardc compile``: from a script to an artefact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardc.driver.api import compile_step
from shardc.driver.artefact import check_folder
from shardc.driver.report import Report
from shardc.driver.script import read_script


def compile_script(
    script: Path,
    out: Path,
    mesh: Mapping[str, int],
    micro_batches: int,
    plan: str,
    options: Mapping[str, Any],
) -> Report:
    """Compile what ``script`` builds for ``mesh`` and write the folder ``out``; what was done, as a report.

    ``options``: ``clip`` (largest gradient norm, or None), ``fuse``, ``numerics``, ``target`` and ``matmuls`` (of
    kernels), ``forbid`` and ``force`` (edges of fusion), ``schedule``, ``stages``, ``stale_weights``, ``recompute``,
    ``cap_bytes`` and ``gather`` (of a pipeline), and ``verify`` (prove equality first).
    """
    check_folder(out.absolute())
    training = read_script(script)
    with training.asks():
        step = compile_step(
            training.model,
            training.optimizer,
            training.batch,
            mesh=mesh,
            plan=plan,
            loss=training.loss,
            clip_grad_norm=options.get("clip"),
            micro_batches=micro_batches,
            fuse=options.get("fuse", True),
            numerics=options.get("numerics", "fused"),
            target=options.get("target"),
            matmuls=options.get("matmuls", "auto"),
            forbid_fusion=options.get("forbid", ()),
            force_fusion=options.get("force", ()),
            verify=bool(options.get("verify")),
            schedule=options.get("schedule"),
            stages=options.get("stages"),
            stale_weights=bool(options.get("stale_weights")),
            recompute=options.get("recompute"),
            cap_bytes=options.get("cap_bytes"),
            gather=options.get("gather"),
        )
    step.save(out)
    return replace(step.plan, written=out)
