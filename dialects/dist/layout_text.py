"""Layouts that a user asks for, and the text that an operator of a trace holds of one."""

from __future__ import annotations

import json
from collections.abc import Sequence

from shardc.diagnostics.passes.plan import BadShardingEntry

WHOLE = "whole"
"""In the place of a layout: no dim is cut."""


def layout_text(name: str, layout: object) -> str:
    """``["data", None, "?"]``, of a value ``name``, as ``[["data"], [], ["?"]]``. Raises BadShardingEntry."""
    entries = () if layout == WHOLE else layout
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise BadShardingEntry(name=name, entry=entries)
    return json.dumps([axes_of(name, entry) for entry in entries])


def axes_of(name: str, entry: object) -> list[str]:
    """The axes of one dim as the user wrote them. Raises BadShardingEntry."""
    names = [entry] if isinstance(entry, str) else [] if entry is None else entry
    axes = [a for a in names if isinstance(a, str)] if isinstance(names, list | tuple) else []
    if not isinstance(names, list | tuple) or len(axes) != len(names):
        raise BadShardingEntry(name=name, entry=entry)
    return axes
