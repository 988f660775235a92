"""Text on where a sharding came from, for reports."""

from __future__ import annotations

import re

from shardc.report.source_lines import shown, shown_in

WHOLE = "nothing shards it"
"""Origin in :func:`shardc.backends.torch.description.edges` of an argument without ``dist.why``."""
_FOLLOWS = re.compile(r"follows (.+?)(?: \(([^()]*)\))?(, through .*)?$", re.DOTALL)
_OPTIMIZER = re.compile(r" at optimizer:(\w+)(?::0)?$")
_SAID = {"annotated": "annotated in the program", "searched": "plan: found by the search"}


def origin_text(why: str, name: str, shape: str, *, through: bool = True) -> str:
    """Return the origin of an argument's sharding as text for users.

    A preset, pattern or file is named as ``plan: tensor``. For optimizer state that follows its parameter,
    the text is ``follows its parameter``. Each axis that the plan does not set has its own part, after a
    semicolon.

    Args:
        why: The argument's ``dist.why``.
        name: The argument's name.
        shape: Its shape as text; ``[]`` for a scalar.
        through: Whether to name the ops through which the sharding came.
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
    """Return the origin of the argument that others follow; for a constraint, its source line."""
    if re.search(r":\d+$", said):
        return shown(said)
    return _SAID.get(said) or (f"plan: {' and '.join(said.split(', '))}" if said else "plan")


def _place(ops: str) -> str:
    """Return the ops as text such as ``, through mm and lerp in the optimizer (AdamW)``."""
    return shown_in(_OPTIMIZER.sub(r" in the optimizer (\1)", ops))
