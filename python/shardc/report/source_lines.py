"""Shortened source locations for reports."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from shardc.diagnostics.base import Remark

_PACKAGES = f"{os.sep}site-packages{os.sep}"


def shown(where: str | None) -> str:
    """Shorten ``file:line``; return an empty text for None.

    A path in an installed package starts at the package (``transformers/models/...``), and a path under the
    working folder is relative to it. A label without a source line (``optimizer:AdamW:0``) loses its ``:0``.
    """
    if where is None:
        return ""
    file, _, line = where.rpartition(":")
    if not line.isdecimal():
        return where
    if line == "0":
        return file
    if _PACKAGES in file:
        file = file.rpartition(_PACKAGES)[2]
    elif Path(file).is_relative_to(Path.cwd()):
        file = str(Path(file).relative_to(Path.cwd()))
    return f"{file}:{line}"


def remark_text(remark: Remark) -> str:
    """Return a remark's line of a report, with its location shortened."""
    return replace(remark, where=shown(remark.where) or None).render()


def shown_in(text: str) -> str:
    """Shorten the location in a sentence that may end in ``at file:line``."""
    words, at, where = text.rpartition(" at ")
    return f"{words}{at}{shown(where)}" if at else text
