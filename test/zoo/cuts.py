"""The zoo under cuts of the sequence: what equals eager training, and what part of the work a device has.

    python test/zoo/cuts.py [-o results.jsonl] [--sample N] [NAME ...]

Each model in a process of its own; a line a model and mesh. ``work`` is the part of the step's floating-point
operations that a device computes, as plans report it (``report/device_work.py``); cut evenly it is 1 / n.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from datetime import date
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

SLACK = 1.1
"""A device's part of the work may be this many times 1 / n."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--mesh", nargs="*", default=["context2", "context4"])
    options = parser.parse_args()
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
