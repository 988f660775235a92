"""Description of the machine behind a table of figures, and the table."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("torch", "torch-mlir", "transformers")


def heading(title: str) -> str:
    """Title, date (UTC), machine with its load of the last minute, versions: two lines of Markdown."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"### {title}\n\n{now}; {cores} cores of {_cpu()}, {_memory_gb():.0f} GB, load {load:.1f} at the "
        f"end; "
        f"Python {platform.python_version()}, {versions}\n"
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; floats with three digits, all but the first column right-aligned."""
    cells = [list(columns), *([_cell(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [
        "| " + " | ".join(_pad(c, w, i) for i, (c, w) in enumerate(zip(r, widths, strict=True))) + " |"
        for r in cells
    ]
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:], ""])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
