"""Where an op comes from, for messages."""

from __future__ import annotations

from torch_mlir import ir


def source_line(location: ir.Location) -> str | None:
    """``file:line`` of the innermost file position of a location, None if it has none."""
    # An op's location comes as the base class; its attribute gives the class that it really is.
    match ir.Location.from_attr(location.attr, location.context):
        case ir.FileLineColLoc() as found:
            return f"{found.filename}:{found.start_line}"
        case ir.NameLoc() as found:
            return source_line(found.child_loc) or found.name_str
        case ir.CallSiteLoc() as found:
            return source_line(found.callee) or source_line(found.caller)
        case ir.FusedLoc() as found:
            return next((line for part in found.locations if (line := source_line(part))), None)
    return None
