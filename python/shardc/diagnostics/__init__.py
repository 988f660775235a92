"""Errors and remarks: one catalogue for the whole project, one module per area."""

from shardc.diagnostics.base import Remark, Remarks, ShardcError, collect_remarks, remark

__all__ = ["Remark", "Remarks", "ShardcError", "collect_remarks", "remark"]
