"""Writes the points that come with shardc: the best of each kernel that was measured on this machine's CPU.

    python test/bench/tune_gather.py tables.db --points 64    # measures the benchmark's kernels python
    test/bench/tune_ship.py tables.db                  # into the package, beside what it has for other CPUs
    python test/bench/tune_ship.py one.db two.db --into shipped.jsonl

Trials of an older code generator, and kernels that gain less than 3%, are left out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from shardc.backends.tuning.task import Task
from shardc.tuner.database.database import WORTH, Database, open_database
from shardc.tuner.database.exchange import merge
from shardc.tuner.database.place import SHIPPED
from shardc.tuner.database.shipped import Entry, entries
from shardc.tuner.signature import signature
from shardc.tuner.task_tuning import generator, local_tuning


def ship(database: Database, file: Path = SHIPPED, target: str | None = None) -> int:
    """Replace a target's points in ``file`` by the best of each kernel measured on ``target`` (this
    machine's) by today's generator that gains (WORTH); return their number. Entries of other targets stay.
    """
    target = target or local_tuning().task_target
    before = [e for of in entries(file).values() for e in of.values() if e["target"] != target]
    new = [entry for task in database.tasks(target) if (entry := _entry(database, task)) is not None]
    order = sorted([*before, *new], key=lambda e: (e["target"], e["threads"], e["generator"], e["structure"]))
    file.write_text("".join(json.dumps(entry) + "\n" for entry in order))
    entries.cache_clear()
    return len(new)


def _entry(database: Database, task: Task) -> Entry | None:
    found = database.best(task)
    if found is None or found.near is not None or found.ratio >= WORTH:
        return None
    form = signature(task)
    return {
        "structure": task.structure,
        "target": task.target,
        "threads": task.threads,
        "label": task.label,
        "generator": generator(task.target),
        "skeleton": form.skeleton,
        "sizes": list(form.sizes),
        "sketch": found.point.sketch,
        "point": list(found.point.values),
        "ratio": round(found.ratio, 4),
        "trials": found.trials,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("databases", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, default=SHIPPED)
    parser.add_argument("--target", help="as databases name it; this machine's CPU if not given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_database(Path(folder, "all.db")) as together:
        for path in options.databases:
            with open_database(path) as database:
                print(f"{path}: {merge(together, database)} trials")
        print(f"{options.into}: {ship(together, options.into, options.target)} points")


if __name__ == "__main__":
    main()
