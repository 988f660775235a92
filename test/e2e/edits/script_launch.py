"""Launch of the edited script: in this process as if it were new, or in a separate process.

    python test/e2e/edits/script_launch.py FOLDER_OF_SOURCES OUT.json

prints nothing, and writes what the launch gave.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor

from shardc.runtime.outputs import Result
from shardc.step.once import LOADED

MODULES = ("edited_script", "edited_model", "edited_helper", "edited_settings")


@dataclass
class Launch:
    """What a launch gave: the losses (none on a mesh of several devices), the remarks, and by name each level
    and the SHA-256 of each file of the artefact. ``is_loaded`` is no part of the comparison.
    """

    losses: list[float]
    remarks: list[str]
    plan: str
    levels: dict[str, str]
    artefact: dict[str, str]
    is_loaded: bool = field(compare=False)


def launched(sources: Path, out: Path) -> Launch:
    """Import the script from ``sources``, compile its step, save it in ``out``, and train."""
    sys.path.insert(0, str(sources))
    is_without_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    importlib.invalidate_caches()
    try:
        step, batches = importlib.import_module("edited_script").launch()
    finally:
        sys.path.remove(str(sources))
        sys.dont_write_bytecode = is_without_bytecode
        for name in MODULES:
            sys.modules.pop(name, None)
    step.save(out)
    compiled = step.compiled
    return Launch(
        losses=[float(_loss(step(batch))) for batch in batches] if compiled.mesh.world_size == 1 else [],
        remarks=[f"{remark.name} {remark.message} {remark.where}" for remark in compiled.remarks],
        plan=json.dumps(compiled.plan_json),
        levels=dict(compiled.levels),
        artefact=_files(out),
        is_loaded=LOADED in compiled.seconds,
    )


def _loss(result: Result) -> Tensor:
    return result if isinstance(result, Tensor) else result.loss


def _files(folder: Path) -> dict[str, str]:
    """The artefact's files, the manifest among them."""
    whole = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sorted(whole.items())}


if __name__ == "__main__":
    sources, out = map(Path, sys.argv[1:])
    out.write_text(json.dumps(asdict(launched(sources, out.with_suffix("")))))
