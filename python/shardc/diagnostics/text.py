"""Tables, sizes and similar names as text."""

from collections.abc import Sequence
from difflib import get_close_matches


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Format rows as an indented table; the columns ``right`` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        sized = enumerate(zip(row, widths, strict=True))
        cells = [cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in sized]
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines


def did_you_mean(value: object, known: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` if a name is similar to one of ``known``, else nothing."""
    near = get_close_matches(value, known, n=1) if isinstance(value, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""


def size_text(size: float) -> str:
    """Format a size such as ``1.4 MB``: decimal units, one digit after the point from kB on."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError
