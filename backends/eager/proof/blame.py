"""What went wrong in which op, for messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch_mlir import ir

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.oracle import ExecutionFailed
from shardc.dialects.aten.call import target_name
from shardc.dialects.location import source_line


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
