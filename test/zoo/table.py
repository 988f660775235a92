"""The zoo's table: ``python test/zoo/table.py results.jsonl`` writes ``table.md``, ``passing.json`` and
``failing.json``.

``--merge`` takes a walk of some models only: what is known of the others stays, and so do the seconds.

``passing.json`` is what was seen to pass, ``{model: [mesh, ...]}``: what samples are drawn from.

``failing.json`` is what does not pass yet, ``{cause: {model: [mesh, ...]}}``, and may only shrink: a model
and mesh that fail now and are not in it make the script say so, change nothing and exit with 1. ``--accept``
takes them all the same (a model that is new in the zoo).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PASSING, FAILING, TABLE = HERE / "passing.json", HERE / "failing.json", HERE / "table.md"
_GONE = ({"build"}, {"build", "train"}, {"build", "train", "trace"})
"""Stages at which a model ends that is not built, not trained eagerly, not traced."""
FAILURES = "## What does not pass yet"

EQUAL = (
    "Equal is: after each of two steps all losses, parameters, buffers and momenta are those of eager "
    "training, in f64 to 1e-9 on every mesh, "
    "and on data2-tensor2 in f32 to 1e-5, or to 4 times what eager in f32 differs from eager in f64, "
    "whichever is more "
    "(`trial.f32_bound`: batch norm over four values magnifies rounding)."
)
LOOSE = 1e-3
"""Errors in f32 that may be larger are listed with their models."""

Row = dict[str, Any]
Failing = dict[str, dict[str, list[str]]]


def read_failing() -> dict[str, list[str]]:
    """The meshes on which each model does not pass yet; ``*`` is all of them."""
    causes: Failing = json.loads(FAILING.read_text()) if FAILING.exists() else {}
    found: dict[str, list[str]] = defaultdict(list)
    for models in causes.values():
        for model, meshes in models.items():
            found[model] += meshes
    return dict(found)


def read_passing() -> dict[str, list[str]]:
    """The meshes on which each model was seen to pass."""
    return json.loads(PASSING.read_text())


def passing_of(rows: list[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row["stage"] == "equal":
            found[row["model"]].append(row["mesh"])
    return {model: sorted(found[model]) for model in sorted(found)}


def read_rows(path: Path) -> list[Row]:
    """The last row of each model and mesh; a row of all meshes replaces what came before it, and
    is replaced.
    """
    latest: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in map(json.loads, path.read_text().splitlines()):
        rows = latest[row["model"]]
        if row["mesh"] == "*":
            rows.clear()
        rows.pop("*", None)
        rows[row["mesh"]] = row
    return [row for rows in latest.values() for row in rows.values()]


def cause_of(row: Row) -> str:
    """One line for what many models fail by."""
    stage, reason = row["stage"], row["reason"]
    name = re.match(r"\w+", reason)
    kind = name.group() if name else ""
    if stage == "build":
        return (
            "outside: needs a package that is not installed"
            if kind == "ImportError"
            else "outside: no tiny configuration"
        )
    if stage == "train":
        return "outside: does not train eagerly on a random batch"
    if stage == "process":
        return "time-out or crash"
    if row.get("torch_refuses"):
        return f"PyTorch cannot trace it either: {kind}"
    if "tensors differ" in reason or "ranks that hold" in reason:
        return f"differs from eager training ({'f32' if 'float32' in reason else 'f64'})"
    op = re.search(r"\b(aten|shardc|torch|prims)\.[\w.]+", reason)
    return f"{stage}: {kind}{f' ({op.group()})' if op else ''}"


def failing_of(rows: list[Row]) -> Failing:
    causes: Failing = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["stage"] != "equal":
            causes[cause_of(row)][row["model"]].append(row["mesh"])
    return _ordered(causes)


def _ordered(causes: Failing) -> Failing:
    """Ours before those outside, the frequent ones first."""
    ordered = sorted(causes.items(), key=lambda item: (item[0].startswith("outside"), -len(item[1]), item[0]))
    return {
        cause: {model: sorted(models[model]) for model in sorted(models)}
        for cause, models in ordered
        if models
    }


def reasons_of(rows: list[Row]) -> dict[str, str]:
    """One line for each model that does not pass everywhere."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["stage"] != "equal":
            found[row["model"]].append(row)
    return {model: _reason(failed) for model, failed in found.items()}


def merge(
    passing: dict[str, list[str]], failing: Failing, walked: set[str]
) -> tuple[dict[str, list[str]], Failing]:
    """What a walk has found, and what was known of the models that were not walked."""
    old = read_passing()
    passing = {model: meshes for model, meshes in old.items() if model not in walked} | passing
    causes: Failing = {cause: dict(models) for cause, models in failing.items()}
    for cause, models in json.loads(FAILING.read_text()).items():
        kept = {model: meshes for model, meshes in models.items() if model not in walked}
        causes[cause] = {**kept, **causes.get(cause, {})}
    return dict(sorted(passing.items())), _ordered(causes)


def grown(rows: list[Row], known: dict[str, list[str]]) -> list[str]:
    """What fails and is not known to."""
    wrong = [row for row in rows if row["stage"] != "equal"]
    return [
        f"{r['model']} on {r['mesh']}: {r['reason']}"
        for r in wrong
        if not {r["mesh"], "*"} & set(known.get(r["model"], ()))
    ]


def render(
    passing: dict[str, list[str]], failing: Failing, reasons: dict[str, str], costs: str, zoo: int
) -> str:
    """The page; ``costs`` is what ``costs_of`` gives, ``zoo`` how many models there are, walked or not."""
    stages = {model: _stage(cause) for cause, models in failing.items() for model in models}
    walked = {*passing, *stages}
    built, trained, traced = (sum(stages.get(model, "run") not in gone for model in walked) for gone in _GONE)
    lines = [
        "# The zoo",
        "",
        "Written by `test/zoo/table.py` from a walk (`test/zoo/walk.py`); not edited by hand.",
        "",
    ]
    lines += [
        f"{len(walked)} of {zoo} models walked: {built} build from a tiny configuration, {trained} train "
        f"eagerly, {traced} are traced.",
        "",
    ]
    lines += ["| mesh | compared | equal to eager |", "|---|---|---|"]
    failed = Counter(
        mesh for models in failing.values() for meshes in models.values() for mesh in meshes if mesh != "*"
    )
    equal = Counter(mesh for meshes in passing.values() for mesh in meshes)
    lines += [
        f"| {mesh} | {equal[mesh] + failed[mesh]} | {equal[mesh]} |" for mesh in sorted({*equal, *failed})
    ]
    lines += ["", costs, "", FAILURES, ""]
    for cause, models in failing.items():
        lines += [f"### {cause}: {len(models)}", ""]
        lines += [f"- {model} ({', '.join(meshes)}): {reasons[model]}" for model, meshes in models.items()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _loose(rows: list[Row]) -> list[str]:
    """The models of which f32 proves little, with what their errors were held to."""
    loose = sorted((row["f32_bound"], row["model"]) for row in rows if row.get("f32_bound", 0.0) > LOOSE)
    return (
        [f"Held in f32 to more than {LOOSE:g}: " + ", ".join(f"{m} ({b:.1g})" for b, m in loose) + "."]
        if loose
        else []
    )


def _stage(cause: str) -> str:
    """Where models that fail for this cause have ended."""
    if cause.startswith("outside"):
        return "train" if "train" in cause else "build"
    return "trace" if cause.startswith(("trace", "PyTorch", "time-out")) else "run"


def costs_of(rows: list[Row]) -> str:
    """What the walk has held models to, and what it took."""
    return "\n".join([EQUAL, *_loose(rows), "", *_seconds(rows), "", *_replicated(rows)])


def read_table() -> tuple[dict[str, str], str]:
    """Reasons by model, and costs, as they stand on the page: those of the last whole walk."""
    page = TABLE.read_text()
    costs = re.split(r"(?:^\|.*\n)+\n", page, maxsplit=1, flags=re.MULTILINE)[1].partition(f"\n\n{FAILURES}")[
        0
    ]
    return dict(re.findall(r"^- (\w+) \([^)]*\): (.*)$", page, re.MULTILINE)), costs


def _seconds(rows: list[Row]) -> list[str]:
    """Median and 90th percentile of what a compile takes."""
    traces = sorted({row["model"]: row["trace_s"] for row in rows if row.get("trace_s")}.values())
    compiles = sorted(row["compile_s"] for row in rows if row.get("compile_s"))
    lines = ["| seconds | median | 90th percentile |", "|---|---|---|"]
    for name, values in (("trace and import, once a model", traces), ("all passes, for each mesh", compiles)):
        if values:
            lines.append(
                f"| {name} | {statistics.median(values):.2f} | {values[int(0.9 * (len(values) - 1))]:.2f} |"
            )
    return lines


def _replicated(rows: list[Row]) -> list[str]:
    counts = Counter(op for op, _ in {(op, row["model"]) for row in rows for op in row.get("replicated", ())})
    shown = ", ".join(f"{op} ({count})" for op, count in counts.most_common())
    return [
        f"Ops without a sharding rule, computed whole on every device, with the number of models: "
        f"{shown or 'none'}."
    ]


def _reason(rows: list[Row]) -> str:
    row = rows[0]
    where = re.sub(r".*/(site-packages|test)/", "", row.get("where") or "")
    text = re.sub(r"\s+", " ", row["reason"])[:200].replace("|", "\\|")
    return f"{text} [{where}]" if where else text


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--accept", action="store_true", help="take what fails newly into the list")
    parser.add_argument("--merge", action="store_true", help="the walk was of some models only")
    options = parser.parse_args()
    from subjects import SUBJECTS

    rows = read_rows(options.results)
    if FAILING.exists() and not options.accept and (new := grown(rows, read_failing())):
        print("the list of what does not pass may only shrink; new in it:", *new, sep="\n  ")
        return 1
    passing, failing, reasons, costs = passing_of(rows), failing_of(rows), reasons_of(rows), costs_of(rows)
    if options.merge:
        passing, failing = merge(passing, failing, {row["model"] for row in rows})
        known, costs = read_table()
        reasons = {**known, **reasons}
    FAILING.write_text(json.dumps(failing, indent=1) + "\n")
    lines = [f"{json.dumps(model)}: {json.dumps(meshes)}" for model, meshes in passing.items()]
    PASSING.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    TABLE.write_text(render(passing, failing, reasons, costs, len(SUBJECTS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
