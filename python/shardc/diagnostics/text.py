"""Tables, sizes and near names in words."""

from collections.abc import Sequence
from difflib import get_close_matches


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows as indented lines in columns as wide as they must be; columns ``right`` are set to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        sized = enumerate(zip(row, widths, strict=True))
        cells = [cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in sized]
        lines.append(f"  {'  '.join(cells)}".rstrip())
    return lines


def did_you_mean(value: object, known: Sequence[str]) -> str:
    """``; did you mean 'x'?`` where a name is near one of ``known``, else nothing."""
    near = get_close_matches(value, known, n=1) if isinstance(value, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""


def size_text(size: float) -> str:
    """``1.4 MB``: decimal units, one digit after the point from kB on."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError
