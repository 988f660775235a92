"""Layouts that a user asks for, and their text form, which an operator of a trace carries."""

from __future__ import annotations

import json
from collections.abc import Sequence

from shardc.diagnostics.passes.plan import BadShardingEntry

WHOLE = "whole"
"""Stands for a layout in which no dim is split."""


def layout_text(name: str, layout: object) -> str:
    """Return a layout ``["data", None, "?"]`` as text ``[["data"], [], ["?"]]``. ``name`` names the value in
    errors. Raises BadShardingEntry.
    """
    entries = () if layout == WHOLE else layout
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise BadShardingEntry(name=name, entry=entries)
    return json.dumps([axes_of(name, entry) for entry in entries])


def axes_of(name: str, entry: object) -> list[str]:
    """Return the axes of one dim of a user's layout. Raises BadShardingEntry."""
    names = [entry] if isinstance(entry, str) else [] if entry is None else entry
    axes = [a for a in names if isinstance(a, str)] if isinstance(names, list | tuple) else []
    if not isinstance(names, list | tuple) or len(axes) != len(names):
        raise BadShardingEntry(name=name, entry=entry)
    return axes
