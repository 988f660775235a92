"""Predicted against measured seconds of collectives, from tables of nccl-tests.

    python test/bench/truth_collectives.py ../shared/data/nccl_*.csv

A file's name says what it is: ``nccl_a100_ar_8.csv`` has all-reduces of 8 A100 of one node. Its columns are
bytes, elements, type, and, out of place and in place, nanoseconds and bus bandwidth. A line for each file
ends the output: ``nccl_a100_ar_8.csv 256 rows: median 0.5% p95 4.3% max 11.1%; 1 to 10 MB: max 1.2%``.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from shardc.cost.cluster.mapping import Links, Placement
from shardc.cost.cluster.names import find_cluster
from shardc.cost.collectives.seconds import seconds

HEADER = "size(B),count,type,"
KNEE_BYTES = (1e6, 10 << 20)
"""Where latency and bandwidth weigh alike."""
NODES = {"a100": "a100-80", "v100": "v100", "h100": "h100", "h200": "h200", "b200": "b200"}
KINDS = {"ar": "all_reduce", "ag": "all_gather", "rs": "reduce_scatter"}
_NAME = re.compile(r"nccl_(?P<node>[a-z0-9]+)_(?P<kind>ar|ag|rs)_(?P<ways>\d+)\.csv")


@dataclass(frozen=True)
class Row:
    """A measured collective on a tensor of ``size_bytes``: the mean of out of place and in place."""

    size_bytes: int
    seconds: float


@dataclass(frozen=True)
class Score:
    """Relative errors of predictions, and those of the knee among them."""

    errors: tuple[float, ...]
    knee: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(map(abs, self.errors))

    @property
    def p95(self) -> float:
        ordered = sorted(map(abs, self.errors))
        return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]

    def __str__(self) -> str:
        all_rows = f"median {self.median:.1%} p95 {self.p95:.1%} max {_most(self.errors):.1%}"
        text = f"{len(self.errors)} rows: {all_rows}"
        return text + (f"; 1 to 10 MB: max {_most(self.knee):.1%}" if self.knee else "")


def _most(errors: Sequence[float]) -> float:
    return max(map(abs, errors))


def is_table(path: Path) -> bool:
    """Whether a file is a table of nccl-tests."""
    with path.open() as file:
        return file.readline().startswith(HEADER)


def read_rows(path: Path) -> list[Row]:
    with path.open() as file:
        _, *rows = csv.reader(file)
    return [Row(int(row[0]), (float(row[3]) + float(row[5])) / 2 * 1e-9) for row in rows]


def links_of(name: str) -> tuple[str, Links]:
    """The kind of collective of a file, and the links of its group. Raises ValueError."""
    match = _NAME.fullmatch(name)
    if match is None or match["node"] not in NODES:
        raise ValueError(f"{name} is not called as in nccl_a100_ar_8.csv; nodes are {', '.join(NODES)}")
    ways = int(match["ways"])
    return KINDS[match["kind"]], Placement.of(find_cluster(NODES[match["node"]]), {"x": ways}).links(["x"])


def score(rows: Sequence[Row], kind: str, links: Links) -> Score:
    """Predictions against ``rows``; nccl-tests counts the bytes of what is gathered."""
    share = links.ways if kind == "all_gather" else 1
    errors = [seconds(kind, links, row.size_bytes / share) / row.seconds - 1 for row in rows]
    low, high = KNEE_BYTES
    knee = [e for e, row in zip(errors, rows, strict=True) if low <= row.size_bytes <= high]
    return Score(tuple(errors), tuple(knee))


def main(paths: Sequence[str]) -> None:
    for path in map(Path, paths):
        kind, links = links_of(path.name)
        rows = read_rows(path)
        found = score(rows, kind, links)
        for row, error in zip(rows[:12], found.errors, strict=False):
            size, taken_us = row.size_bytes / (1 << 20), 1e6 * row.seconds
            print(f"  {size:6.0f} MiB  measured {taken_us:7.1f} us  predicted {error:+.1%}")
        print(f"{path.name} {found}")


if __name__ == "__main__":
    main(sys.argv[1:])
