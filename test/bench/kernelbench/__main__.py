"""KernelBench (MIT) on CPUs: ``torch.compile(backend="shardc")`` against eager and TorchInductor.

    python test/bench/kernelbench FOLDER                     # all problems: values, times, bounds, the table
    python test/bench/kernelbench FOLDER --values            # values alone
    python test/bench/kernelbench FOLDER --minutes 50        # a part; the same line again goes on
    python test/bench/kernelbench FOLDER --table             # what was measured so far

``FOLDER`` holds ``level1`` and ``level2`` of KernelBench; nothing of it is kept here. Sizes are scaled by
the rule in ``problems.py``. Rows go to ``--results`` as they come, one process for each problem and number of
threads. Beside each row stands its bound (``bounds.py``). Models are in training mode. One thread is timed in
its own CPU time, several by the clock.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import rows
from problems import find, scaled

HERE = Path(__file__).parent


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("folder", type=Path)
    options.add_argument("--problems", nargs="*", default=[""], help="parts of names, e.g. level1/9")
    options.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    options.add_argument("--contenders", nargs="*", default=["shardc", "inductor", "max-autotune", "eager"])
    options.add_argument("--repeats", type=int, default=21)
    options.add_argument(
        "--values", action="store_true", help="compare values of shardc alone, on one thread"
    )
    options.add_argument("--minutes", type=float, default=1e9)
    options.add_argument("--results", type=Path, default=Path("out/kernelbench.jsonl"))
    options.add_argument("--table", action="store_true", help="print what --results holds")
    options.add_argument("--markdown", action="store_true", help="the same, with a table of all rows")
    chosen = options.parse_args()
    if not chosen.table and not chosen.markdown:
        chosen.results.parent.mkdir(parents=True, exist_ok=True)
        for line in _measured(chosen):
            print(rows.line(line), flush=True)
            with chosen.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
    found = [json.loads(line) for line in chosen.results.read_text().splitlines()]
    if chosen.markdown:
        print(rows.table(found), end="\n\n")
    print(rows.summary(found))
    return any(rows.wrong(row) for row in found)


def _measured(chosen: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Rows that ``--results`` does not hold yet."""
    end = time.monotonic() + 60 * chosen.minutes
    have = {
        (row["problem"], row["threads"])
        for row in map(json.loads, chosen.results.read_text().splitlines() if chosen.results.exists() else [])
    }
    contenders = ["shardc"] if chosen.values else chosen.contenders
    for threads in [1] if chosen.values else chosen.threads:
        for problem in find(chosen.folder):
            if not any(part in problem.name for part in chosen.problems) or (problem.name, threads) in have:
                continue
            if time.monotonic() > end:
                print(f"stopped after {chosen.minutes} minutes; the same command goes on", file=sys.stderr)
                return
            sizes = json.dumps(scaled(problem).sizes)
            repeats = 0 if chosen.values else chosen.repeats
            command = [
                str(HERE / "one.py"),
                str(problem.path),
                sizes,
                str(threads),
                str(repeats),
                *contenders,
            ]
            ran = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, check=False)
            lines = [json.loads(text) for text in ran.stdout.splitlines() if text.startswith("{")]
            yield from lines or [
                {
                    "problem": problem.name,
                    "threads": threads,
                    "backward": False,
                    "failure": f"ended with {ran.returncode}",
                }
            ]


if __name__ == "__main__":
    sys.exit(main())
