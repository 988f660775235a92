"""Writes the points that come with shardc: the best of each kernel that was measured on this machine's CPU.

    python test/bench/tune_gather.py tables.db --points 64    # measures the benchmark's kernels python
    test/bench/tune_ship.py tables.db                  # into the package, beside what it has for other CPUs
    python test/bench/tune_ship.py one.db two.db --into shipped.jsonl

Trials of an older code generator, and kernels that gain less than 3%, are left out.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from shardc.tuner.database import open_database
from shardc.tuner.database.exchange import merge
from shardc.tuner.database.place import SHIPPED
from shardc.tuner.database.shipped import ship


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
