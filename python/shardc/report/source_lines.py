"""Source lines as reports show them: short enough to read, long enough to find."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGES = f"{os.sep}site-packages{os.sep}"


def shown(where: str | None) -> str:
    """``file:line`` without what is the same for all files of a kind; empty for None.

    Installed packages are named from the package on (``transformers/models/...``), files under the working
    folder from there on. A label that stands for no line of source (``optimizer:AdamW:0``) loses its line 0.
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


def shown_in(text: str) -> str:
    """A sentence that may end in ``at file:line``, with that line shortened."""
    words, at, where = text.rpartition(" at ")
    return f"{words}{at}{shown(where)}" if at else text
