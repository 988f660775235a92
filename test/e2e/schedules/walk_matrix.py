"""Walks every schedule on every size for every model, and writes ``table.md``.

python test/e2e/schedules/walk_matrix.py -o cells.txt     # goes on where an earlier walk into that file
stopped python test/e2e/schedules/walk_matrix.py -o cells.txt --only llama
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from matrix import MODELS, SCHEDULES, STAGES, TIMES, Cell, cells, try_cell  # noqa: E402  (needs the paths)

TABLE = HERE / "table.md"
EQUAL = "equal"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="file of verdicts to append to")
    parser.add_argument("--only", action="append", choices=tuple(MODELS), help="a model; may be given again")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of transformers, on tiny configurations
    found = _read(options.output)
    for cell in cells(tuple(options.only or MODELS)):
        if cell not in found:
            started = time.process_time()
            found[cell] = verdict(cell)
            with options.output.open("a") as file:
                file.write(_line(cell, found[cell]) + "\n")
            print(f"{cell}: {found[cell]} ({time.process_time() - started:.1f} s of CPU)", flush=True)
    wrong = [cell for cell, said in found.items() if said != EQUAL]
    if set(found) == set(cells()):
        TABLE.write_text(render(found))
    return 1 if wrong else 0


def verdict(cell: Cell) -> str:
    """``equal``, or the first line of what went wrong."""
    try:
        try_cell(cell)
    except Exception as error:  # every kind of failure is an outcome of a walk
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"[:200]
    return EQUAL


def render(found: dict[Cell, str]) -> str:
    """The page: a table for each model, a row for each schedule, a column for each size."""
    sizes = [(stages, stages * times) for stages in STAGES for times in TIMES]
    lines = [
        "# Schedules on simulated ranks",
        "",
        "Written by `test/e2e/schedules/walk_matrix.py`; not edited by hand. One step in f64, cut into "
        "stages: loss,",
        "parameters and optimizer state after it equal those of eager training on one device to 1e-9. A "
        "column is",
        "stages x micro-batches; ranks are the stages, or half of them for schedules with two stages a "
        "rank. Token-level",
        "schedules run two slices of each sequence; asynchronous ones (`pipedream`) equal a loop that "
        "keeps old weights by hand.",
    ]
    for model in MODELS:
        heads = [f"{stages} x {count}" for stages, count in sizes]
        lines += [
            "",
            f"## {model}",
            "",
            f"| schedule | {' | '.join(heads)} |",
            "|---" * (len(heads) + 1) + "|",
        ]
        for schedule in SCHEDULES[model]:
            row = [found[Cell(model, schedule, *size)] for size in sizes]
            lines.append(f"| {schedule} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def read_cells(text: str) -> dict[Cell, str]:
    """What :func:`render` wrote."""
    found: dict[Cell, str] = {}
    model, sizes = "", list[tuple[int, int]]()
    for line in text.splitlines():
        if line.startswith("## "):
            model = line[3:]
        elif line.startswith("| schedule"):
            heads = [head.split(" x ") for head in line.strip("| ").split(" | ")[1:]]
            sizes = [(int(stages), int(count)) for stages, count in heads]
        elif line.startswith("| "):
            schedule, *row = line.strip("| ").split(" | ")
            found.update((Cell(model, schedule, *size), said) for size, said in zip(sizes, row, strict=True))
    return found


def _read(path: Path) -> dict[Cell, str]:
    lines = path.read_text().splitlines() if path.exists() else []
    parts = [line.split(" ", 4) for line in lines]
    return {Cell(model, schedule, int(s), int(m)): said for model, schedule, s, m, said in parts}


def _line(cell: Cell, said: str) -> str:
    return f"{cell.model} {cell.schedule} {cell.stages} {cell.micro_batches} {said}"


if __name__ == "__main__":
    sys.exit(main())
