"""Rows of KernelBench's results as text: a line each, and the summary of ``docs/benchmarks.md``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]
SLACK = 1e-5
"""Error that any contender may have, over the largest number of a result."""
ABOVE = 1.2
"""Where Inductor takes more than this times the bound, code generation decides; elsewhere a library does."""


def wrong(row: Row) -> bool:
    """Whether shardc failed, or differs from f64 by more than four times as much as eager."""
    if "failure" in row:
        return True
    return not row["errors"]["shardc"] <= 4 * row["errors"]["eager"] + SLACK


def ratio(row: Row) -> float:
    """Our time over that of the faster of Inductor's modes."""
    seconds = row["seconds"]
    return seconds["shardc"] / min(s for name, s in seconds.items() if name in ("inductor", "max-autotune"))


def line(row: Row) -> str:
    """A row as one line."""
    what = f"{row['problem'][:48]:48} {'f+b' if row['backward'] else 'fwd'} {row['threads']}t"
    if "failure" in row:
        return f"{what} FAILED {row['failure'][:150]}"
    verdict = "WRONG" if wrong(row) else "right"
    errors = f"{verdict} {row['errors']['shardc']:.1e} (eager {row['errors']['eager']:.1e})"
    if "seconds" not in row:
        return f"{what} {errors}"
    times = " ".join(f"{name} {1e3 * s:.2f}" for name, s in row["seconds"].items())
    return f"{what} {errors} {times} bound {1e3 * _bound(row):.2f} ms, {ratio(row):.2f}"


def summary(found: list[Row]) -> str:
    """Geometric means by level, direction, threads, and by whether Inductor is at the bound."""
    lines = [f"{len(found)} rows, {sum(map(wrong, found))} wrong or failed"]
    timed = [row for row in found if "seconds" in row]
    groups: dict[tuple[str, str, int, bool], list[Row]] = {}
    for row in timed:
        rival = min(s for name, s in row["seconds"].items() if name in ("inductor", "max-autotune"))
        key = (row["problem"].partition("/")[0], "f+b" if row["backward"] else "fwd", row["threads"])
        groups.setdefault((*key, rival > ABOVE * _bound(row)), []).append(row)
    for (level, direction, threads, above), rows in sorted(groups.items()):
        ratios = [ratio(row) for row in rows]
        where = f"Inductor above {ABOVE} of the bound" if above else "Inductor at the bound"
        worst = max(rows, key=ratio)
        lines.append(
            f"{level} {direction} {threads} threads, {where}: {len(rows)} rows, geometric mean "
            f"{_mean(ratios):.2f}, above 1.1: {sum(r > 1.1 for r in ratios)}, worst {ratio(worst):.2f} "
            f"({worst['problem'].partition('/')[2]})"
        )
    return "\n".join(lines)


def table(found: list[Row]) -> str:
    """All timed rows as a Markdown table: milliseconds, and our time over Inductor's and over the bound."""
    head = ("problem", "direction", "shardc", "Inductor", "eager", "bound", "of Inductor's", "of the bound")
    lines = [f"| {' | '.join(head)} |", f"|---|---|{'--:|' * (len(head) - 2)}"]
    for row in (row for row in found if "seconds" in row):
        seconds, bound = row["seconds"], _bound(row)
        rival = min(s for name, s in seconds.items() if name in ("inductor", "max-autotune"))
        milliseconds = [f"{1e3 * s:.2f}" for s in (seconds["shardc"], rival, seconds["eager"], bound)]
        shares = [f"{ratio(row):.2f}", f"{seconds['shardc'] / bound:.2f}"]
        name = row["problem"].strip("_").replace("_", " ")
        direction = "with gradients" if row["backward"] else "forward"
        lines.append(f"| {' | '.join([name, direction, *milliseconds, *shares])} |")
    return "\n".join(lines)


def _bound(row: Row) -> float:
    return max(row["bound"].values())


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.exp(sum(map(math.log, found)) / len(found))
