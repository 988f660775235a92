"""The ``pipe`` dialect: stages, actions and schedules of pipelines.

Schedules as data (``action``, ``schedule``, ``dependence``, ``csv_form``) need no MLIR; :func:`load`
registers the ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_mlir.dialects import ext


def load() -> type[ext.Dialect]:
    """Register every op of the dialect, and return the dialect."""
    from shardc.dialects.pipe import action_op, receive, schedule_op, send, stage, yield_op  # noqa: F401
    from shardc.dialects.pipe.dialect import Pipe

    return Pipe
