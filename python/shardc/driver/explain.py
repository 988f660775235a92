"""``shardc explain``: where each sharding came from, which collectives stand where, and their bytes."""

from __future__ import annotations

import json
from pathlib import Path

from torch_mlir import ir

from shardc.diagnostics.api import NotAnArtefact
from shardc.dialects.context import new_context
from shardc.driver.artefact import read_manifest
from shardc.driver.mlir_errors import Source, parse_module
from shardc.driver.report import Report, make_report
from shardc.driver.traffic import Transfer, transfers
from shardc.passes.program import find_function


def explain(path: Path, what: str | None = None) -> str:
    """The report of an artefact (or of a level-3 module), then a line per argument and per collective.

    ``what`` keeps only arguments whose name contains it. Raises BadArtefact, MalformedMlir or NotAnArtefact.
    """
    module, plan = _read(path)
    report = make_report(module, plan, [])
    lines = [report.render(), "", *_arguments(report, what)]
    if what is None:
        lines += ["", *_collectives(transfers(module))]
    return "\n".join(lines)


def _read(path: Path) -> tuple[ir.Module, str]:
    if path.is_dir():
        read_manifest(path)
        plan = json.loads((path / "plan.json").read_text()).get("text", "?")
        path = path / "levels" / "3-rank.mlir"
    else:
        plan = "?"
    module = parse_module(Source(str(path), path.read_text()), new_context())
    function = find_function(module)
    edges = list(function.attributes["arg_attrs"]) if function is not None and "arg_attrs" in function.attributes else []
    if not edges or any("dist.global_type" not in a for a in edges):
        raise NotAnArtefact(path=path, problem="its arguments carry no dist.sharding and dist.global_type", where=str(path))
    return module, plan


def _arguments(report: Report, what: str | None) -> list[str]:
    rows = [r for r in report.shardings if what is None or what in r[1]]
    if not rows:
        return [f"no argument has {what!r} in its name"]
    width = max(len(name) for _, name, _, _, _ in rows)
    return ["arguments: role, name, global shape, layout, where it came from"] + [
        f"  {role:<10} {name:<{width}} {shape:<18} {layout:<22} {why}" for role, name, shape, layout, why in rows
    ]


def _collectives(found: list[Transfer]) -> list[str]:
    lines = ["collectives in order: phase, kind, axes, local shape, bytes sent per device, source line"]
    for t in found:
        shape = "x".join(map(str, t.type.shape)) or "scalar"
        times = f" x{t.times}" if t.times > 1 else ""
        lines.append(
            f"  {t.phase or '-':<10} {t.kind:<15} {'+'.join(t.axes):<12} {shape:<16} {t.bytes_moved:>12,.0f}{times}  {t.where or ''}"
        )
    return lines
