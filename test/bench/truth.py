"""Predicted against measured iteration times of Megatron: rows of vTrain's files, or the table of SC21.

    python test/bench/truth.py ROWS.csv
    python test/bench/truth.py anchors.md --causes

Each row is shardc's own program for a GPT of one layer, costed with as many layers and stages as the row has;
nothing is measured here. The last line has the mean and the largest error, the share of pairs of rows in the
right order, and how much slower than the best of a model's rows the one is that the model picks, on average.

Pairs: of rows that train the same model with the same batch on as many GPUs, and differ by over 2%. Tables in
which no two rows do (``all pairs``) compare each row with each.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from megatron.predict import Prediction, predict
from megatron.rows import Row, read_rows

APART = 1.02
"""Rows that are nearer than that have no order."""


@dataclass(frozen=True)
class Compared:
    """A row and what was predicted for it."""

    row: Row
    predicted: Prediction

    @property
    def error(self) -> float:
        return self.predicted.seconds / self.row.measured_s - 1

    def __str__(self) -> str:
        p = self.predicted
        chosen = f"b{p.micro_batch}" + (f" v{p.chunks}" if p.chunks > 1 else "")
        times = f"{self.row.measured_s:8.3f} s {p.seconds:8.3f} s {self.error:+6.1%}"
        return f"{self.row!s:52} {chosen:7} {times}"


def order(rows: Sequence[Compared], comparable: bool) -> tuple[int, int]:
    """Pairs in the right order, and all pairs: of the same model if ``comparable``."""
    right = pairs = 0
    for a, b in itertools.combinations(rows, 2):
        times = sorted((a.row.measured_s, b.row.measured_s))
        if (comparable and a.row.model != b.row.model) or times[1] <= APART * times[0]:
            continue
        pairs += 1
        right += (a.row.measured_s < b.row.measured_s) == (a.predicted.seconds < b.predicted.seconds)
    return right, pairs


def pick(rows: Sequence[Compared]) -> tuple[float, int]:
    """Mean of the time of the plan predicted fastest over that of the fastest, and of how many models."""
    models: dict[tuple[int, ...], list[Compared]] = {}
    for row in rows:
        models.setdefault(row.row.model, []).append(row)
    several = [group for group in models.values() if len(group) > 1]
    picked = [
        min(group, key=lambda r: r.predicted.seconds).row.measured_s / min(r.row.measured_s for r in group)
        for group in several
    ]
    return (statistics.fmean(picked) if picked else 1.0), len(several)


def summary(rows: Sequence[Compared]) -> list[str]:
    """Errors by table, and the line that ends the report."""
    errors = [abs(row.error) for row in rows]
    within = sum(error <= 0.2 for error in errors) / len(errors)
    (right, pairs), (all_right, all_pairs) = order(rows, True), order(rows, False)
    slower, models = pick(rows)
    lines = [f"{len(rows)} rows, {within:.0%} within 20%"]
    lines.append(f"pairs of one model {right}/{pairs}, all pairs {all_right}/{all_pairs}, {models} picks")
    kind = rows[0].row.table
    counted = (right, pairs) if kind == "multi-node" and pairs else (all_right, all_pairs)
    share = counted[0] / counted[1] if counted[1] else 1.0
    mape = f"MAPE {statistics.fmean(errors):.1%} max {max(errors):.0%}"
    return [*lines, f"{mape} order {share:.2f} pick {slower:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, help="a CSV file, or a Markdown file with such tables")
    parser.add_argument("--causes", action="store_true", help="what the time of each row is of")
    options = parser.parse_args()
    compared = []
    for row in read_rows(options.rows):
        compared.append(Compared(row, predict(row)))
        print(compared[-1], flush=True)
        if options.causes:
            print("\n".join(compared[-1].predicted.time.render()))
    print("\n".join(summary(compared)))


if __name__ == "__main__":
    main()
