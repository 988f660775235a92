"""The zoo under cuts of the sequence, of experts and of images: what equals eager training, and what part of
the work a device has.

    python test/zoo/cuts.py [-o results.jsonl] [--sample N] [--mesh MESH ...] [NAME ...]
    python test/zoo/cuts.py --write results.jsonl ...

Each model in a process of its own; a line a model and mesh. ``work`` is the part of the step's floating-point
operations that a device computes, as plans report it (``report/device_work.py``); cut evenly it is 1 / n.

``--write`` puts what was walked into ``cuts.json``: for each mesh the models that are equal and cut, those
that are equal and of which a device does more than 1.1 / n, with the lines, and those that fail, with why.
What it knows of other models stays. Samples of ``make test-all`` are drawn from the first.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

SLACK = 1.1
"""A device's part of the work may be this many times 1 / n."""
KNOWN = HERE / "cuts.json"
Cuts = dict[str, dict[str, dict[str, Any]]]
"""Mesh -> ``cut``, ``uncut`` or ``failing`` -> model -> part of the work, with lines, or reason."""


def is_cut(mesh: str, work: float) -> bool:
    """Whether devices of one of ``trial.CUTS`` share the work out."""
    from trial import CUTS

    return work <= SLACK / prod(CUTS[mesh][0].values())


def read_cuts() -> Cuts:
    return json.loads(KNOWN.read_text())


def merged(known: Cuts, rows: Iterable[Mapping[str, Any]]) -> Cuts:
    """``known``, with what ``rows`` say of a model and mesh in the place of what was known."""
    found = {mesh: {kind: dict(models) for kind, models in kinds.items()} for mesh, kinds in known.items()}
    for row in rows:
        mesh, model = row["mesh"], row["model"]
        kinds = found.setdefault(mesh, {"cut": {}, "uncut": {}, "failing": {}})
        for models in kinds.values():
            models.pop(model, None)
        if row["stage"] != "equal":
            kinds["failing"][model] = f"{row['stage']}: {row['reason']}"[:200]
        elif is_cut(mesh, row["work"]):
            kinds["cut"][model] = round(row["work"], 3)
        else:
            kinds["uncut"][model] = [round(row["work"], 3), *row["repeated"]]
    return {
        mesh: {kind: dict(sorted(models.items())) for kind, models in found[mesh].items()}
        for mesh in sorted(found)
    }


def write(paths: Sequence[Path]) -> None:
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    ended = [row for row in rows if row["mesh"] == "*"]  # processes that tell nothing of a mesh
    for row in ended:
        print(f"left out: {row['model']}: {row['reason']}")
    rows = [row for row in rows if row not in ended]
    known = merged(read_cuts() if KNOWN.exists() else {}, rows)
    KNOWN.write_text(json.dumps(known, indent=1) + "\n")
    for mesh, kinds in known.items():
        print(mesh, *(f"{kind} {len(models)}" for kind, models in kinds.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--mesh", nargs="*", default=["context2", "context4"])
    parser.add_argument("--write", nargs="+", type=Path)
    options = parser.parse_args()
    if options.write:
        write(options.write)
        return 0
    from table import read_passing
    from walk import outcomes_on, run_apart, sample

    names = options.names or sorted(read_passing())
    if options.sample:
        names = sample(options.sample, date.today(), names)
    done = set()
    if options.output and options.output.exists():
        done = {json.loads(line)["model"] for line in options.output.read_text().splitlines()}
    for name in [n for n in names if n not in done]:
        for row in run_apart(name, 240, partial(outcomes_on, name, options.mesh)):
            words = (row[k] for k in ("model", "mesh", "stage", "reason", "where"))
            print(*words, row.get("work", ""), row.get("repeated", ""), flush=True)
            if options.output:
                with options.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
