"""The user's source lines of ops, for comments in the program."""

from __future__ import annotations

from pathlib import PurePath

from torch_mlir import ir

UNNAMED = "-"
"""What MLIR calls a module that was parsed from a string: no file of the user's."""


class SourceLines:
    """``model.py:12`` for locations; each distinct one is read once."""

    def __init__(self) -> None:
        self._known: dict[ir.Attribute, str | None] = {}

    def of(self, op: ir.Operation) -> str | None:
        """File name and line of the innermost frame that the location has; None if it has none."""
        attribute = op.location.attr
        if attribute not in self._known:
            self._known[attribute] = _line(attribute, op.context)
        return self._known[attribute]


def _line(attribute: ir.Attribute, context: ir.Context) -> str | None:
    match ir.Location.from_attr(attribute, context):
        case ir.FileLineColLoc() as found:
            name = PurePath(found.filename).name
            if name == UNNAMED:
                return None
            return f"{name}:{found.start_line}" if found.start_line else name or None
        case ir.NameLoc() as found:
            return _line(found.child_loc.attr, context)
        case ir.CallSiteLoc() as found:
            return _line(found.callee.attr, context) or _line(found.caller.attr, context)
        case ir.FusedLoc() as found:
            return next((line for part in found.locations if (line := _line(part.attr, context))), None)
    return None
