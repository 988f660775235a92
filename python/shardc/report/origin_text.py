"""Where a sharding came from, in the words of reports."""

from __future__ import annotations

import re

from shardc.report.source_lines import shown, shown_in

WHOLE = "nothing shards it"
"""What :func:`shardc.backends.torch.description.edges` says of an argument without ``dist.why``."""
_FOLLOWS = re.compile(r"follows (.+?)(?: \(([^()]*)\))?(, through .*)?$", re.DOTALL)
_OPTIMIZER = re.compile(r" at optimizer:(\w+)(?::0)?$")
_SAID = {"annotated": "annotated in the program", "searched": "plan: found by the search"}


def origin_text(why: str, name: str, shape: str, *, through: bool = True) -> str:
    """``dist.why`` of the argument ``name`` of ``shape`` for people; without ``through`` not by which ops.

    A preset, pattern or file is named as ``plan: tensor``. An optimizer's state that follows the parameter
    that it is of ``follows its parameter``. Each axis that a plan does not set stands behind a semicolon.
    """
    if why == WHOLE:
        reason = "a scalar" if shape == "[]" else "neither the plan nor an op shards it"
        return f"whole on each device: {reason}"
    return "; ".join(_part(part, name, through) for part in why.split("; "))


def _part(why: str, name: str, through: bool) -> str:
    axis, follows, _ = why.rpartition("follows ")
    found = _FOLLOWS.match(why[len(axis) :]) if follows else None
    if found is None:
        return _reason(why)
    root, said, ops = found.groups()
    whose = "its parameter" if name.startswith(f"{root}/") else root
    of_plan = f" ({_reason(said)})" if said else ""
    return f"{axis}follows {whose}{of_plan}{_place(ops or '') if through else ''}"


def _reason(said: str) -> str:
    """What is said of an argument that others follow; of a constraint its line."""
    if re.search(r":\d+$", said):
        return shown(said)
    return _SAID.get(said) or (f"plan: {' and '.join(said.split(', '))}" if said else "plan")


def _place(ops: str) -> str:
    """``, through mm and lerp in the optimizer (AdamW)``; lines of source as reports show them."""
    return shown_in(_OPTIMIZER.sub(r" in the optimizer (\1)", ops))
