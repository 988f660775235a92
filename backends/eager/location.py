"""Where an op comes from, and what went wrong there, for messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch_mlir import ir

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.oracle import ExecutionFailed
from shardc.dialects.aten.call import target_name


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


@contextmanager
def blamed_on(op: ir.Operation) -> Iterator[None]:
    """Turns whatever is raised inside into ExecutionFailed with the op's name and line."""
    try:
        yield
    except ShardcError:
        raise
    except Exception as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        if isinstance(error, KeyError):
            reason = f"{type(error).__name__} {reason}"
        raise ExecutionFailed(op=target_name(op), reason=reason, where=source_line(op.location)) from error
