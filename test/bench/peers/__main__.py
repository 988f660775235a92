"""shardc's search beside the planners in Sailor's repository, on one profile and judged by one simulator.

    python test/bench/peers --sailor FOLDER --python PYTHON --work FOLDER
    python test/bench/peers ... --models OPT-350 --gpus A100-40 --nodes 8 32 --batches 1024 --planners AMP

``--sailor``: a checkout of https://github.com/eth-easl/sailor, which stays as it is. ``--python``: an
interpreter with torch, pandas, einops, transformers and pybind11, which runs the planners and the simulator.
``--work``: a folder for a copy of their code, compiled. A planner that fails has its error as its row.

Each planner searches with its own profile and cost model. Its first plan that the judge accepts counts, as in
Sailor's own evaluation; the column "best" has the fastest by the judge among the first 300 of its list.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from math import inf
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from layer_times import profile_of
from ours import Case, Plan, Search, as_sailor
from questions import CONFIGS, Question, questions
from working_copy import Copy, copy_of

sys.path.append(str(Path(__file__).parents[1]))
from machine import heading, table

PLANNERS = ("Piper", "Varuna", "Metis", "Galvatron", "AMP", "Sailor")
COLUMNS = ("planner", "s a step", "ours / it", "best", "ours / best", "search s", "plan")


def main() -> None:
    given = _arguments()
    copy = copy_of(given.sailor.resolve(), given.python.absolute(), given.work.resolve())
    kept = []
    for question in questions(given.models, given.gpus, given.nodes, given.batches):
        rows = _rows(copy, question, given)
        kept.append({"question": question.text, "rows": rows})
        print(f"#### {question.text}\n")
        print(table(COLUMNS, [_cells(row, rows[0]) for row in rows if row.get("picked")]))
        print("".join(f"- {_left_out(row)}\n" for row in rows if not row.get("picked")), flush=True)
    print(_summary(kept))
    print(heading("Planners of Sailor's repository"))
    if given.json:
        given.json.write_text(json.dumps(kept, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sailor", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=["OPT-350"], choices=list(CONFIGS))
    parser.add_argument("--gpus", nargs="+", default=["A100-40"])
    parser.add_argument("--nodes", nargs="+", type=int, default=[8, 32])
    parser.add_argument("--batches", nargs="+", type=int, default=[1024])
    parser.add_argument("--planners", nargs="+", default=list(PLANNERS), choices=PLANNERS)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that Metis searches")
    parser.add_argument("--json", type=Path, help="file for the rows")
    return parser.parse_args()


def _rows(copy: Copy, question: Question, given: argparse.Namespace) -> list[dict[str, Any]]:
    rows = _ours(copy, question)
    for name in given.planners:
        row = {"planner": name, **_peer(copy, question, name, given.limit)}
        rows.append(row)
    return rows


def _ours(copy: Copy, question: Question) -> list[dict[str, Any]]:
    """Search with shardc, and let the judge check the seconds of its plans."""
    planner = copy.planner
    cluster = json.loads((planner / "simulations/configs/basic_cluster_config.json").read_text())
    node = cluster[question.gpu]["gpus_per_node"]
    profile = profile_of(planner, question.model, question.gpu)
    rows, plans = [], list[tuple[dict[str, Any], Plan]]()
    for name, is_even in (("shardc", True), ("shardc, uneven", False)):
        search = Search(profile, Case(node * question.nodes, node, question.batch), is_even)
        start_s = perf_counter()
        around, plan = search.run(plans[0][1] if plans else None)
        row: dict[str, Any] = {"planner": name, "search_s": perf_counter() - start_s, "gap": around.gap}
        row |= {"looked_at": around.looked_at, "choices": around.choices, "why": around.why}
        rows.append(row)
        if plan is not None:
            plans.append((row, plan))
    asked = [as_sailor(plan, question.gpu, cluster["zone"]) for _, plan in plans]
    judged = _side(copy, {"case": question.request(planner), "plans": asked})["judged"]
    for (row, plan), found in zip(plans, judged, strict=True):
        if found["seconds"] is None or abs(found["seconds"] - plan.seconds) > 1e-6 * plan.seconds:
            raise SystemExit(f"{question.text}: counted {plan.seconds} s, the judge says {found}")
        row |= {"picked": found, "best": found}
    return rows


def _peer(copy: Copy, question: Question, name: str, limit_s: float) -> dict[str, Any]:
    if name in copy.failed:
        return {"error": copy.failed[name]}
    case = question.request(copy.planner)
    return _side(copy, {"case": case, "planner": name, "limit_s": limit_s})


def _side(copy: Copy, request: dict[str, Any]) -> dict[str, Any]:
    """Ask Sailor's side in a process of its own; its error, if it fails."""
    folder = copy.root / "run"
    folder.mkdir(exist_ok=True)
    asked, answer = folder / "request.json", folder / "answer.json"
    answer.unlink(missing_ok=True)
    asked.write_text(json.dumps({"root": str(copy.root), **request}))
    script = Path(__file__).with_name("sailor_side.py").absolute()
    command = [copy.python, script, asked, answer]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode or not answer.exists():
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"error": lines[-1].replace(str(copy.root), "")}
    return json.loads(answer.read_text())


def _cells(row: dict[str, Any], ours: dict[str, Any]) -> tuple[object, ...]:
    picked, best = row["picked"], row["best"]
    seconds = [f"{one['seconds']:.3f}" for one in (picked, best)]
    ratios = [f"{_ratio(ours, one):.3f}" for one in (picked, best)]
    search_s = f"{row['search_s']:.2f}"
    return row["planner"], seconds[0], ratios[0], seconds[1], ratios[1], search_s, _plan(picked["plan"])


def _ratio(ours: dict[str, Any], found: dict[str, Any]) -> float:
    """Return shardc's seconds as a part of a peer's; infinite if shardc found no plan."""
    return ours["picked"]["seconds"] / found["seconds"] if ours.get("picked") else inf


def _left_out(row: dict[str, Any]) -> str:
    if row.get("error"):
        return f"{row['planner']}: {row['error']}"
    skipped = ", ".join(f"{why}: {count}" for why, count in row.get("skipped", {}).items())
    plans = f"none of {row['plans']} plans is accepted ({skipped})" if row.get("plans") else "no plan"
    return f"{row['planner']}: {plans}, search {row['search_s']:.2f} s"


def _summary(kept: list[dict[str, Any]]) -> str:
    """Return for each peer how often it was judged, and the largest and the middle ratio of shardc to it."""
    ratios = dict[str, list[tuple[float, float]]]()
    for one in kept:
        ours, *peers = one["rows"]
        for row in peers:
            if row.get("picked"):
                both = _ratio(ours, row["picked"]), _ratio(ours, row["best"])
                ratios.setdefault(row["planner"], []).append(both)
    rows = []
    for name, pairs in ratios.items():
        first, best = zip(*pairs, strict=True)
        is_less = sum(ratio < 0.9995 for ratio in first)
        rows.append(
            (
                name,
                len(pairs),
                is_less,
                *(f"{of(part):.3f}" for part in (first, best) for of in (max, median)),
            )
        )
    columns = ("planner", "cases", "shardc better", "largest", "median", "largest of best", "median of best")
    return f"#### shardc's seconds as a part of a planner's\n\n{table(columns, rows)}"


def _plan(plan: dict[str, Any]) -> str:
    """Return a plan's stages with their layers, data-parallel and tensor degrees, and its micro-batch."""
    texts = []
    for layers, data, tensor in zip(plan["stages"], plan["data"], plan["tensor"], strict=True):
        degrees = {(d, *t) for d, t in zip(data, tensor, strict=True)}
        kinds = " ".join(sorted("d" + " t".join(map(str, degree)) for degree in degrees))
        texts.append(f"p{len(layers)} {kinds} ({' '.join(map(str, layers))})")
    return f"{'; '.join(texts)}, micro-batch {plan['micro_batch']}"


if __name__ == "__main__":
    main()
