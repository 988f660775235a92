"""Errors of constraints about fusion: an edge that is no edge, that names no ops, or that cannot be had."""

from shardc.diagnostics.base import ShardcError


class FusionConstraintError(ShardcError):
    """Base of errors in what a user forbids and forces."""


class BadFusionEdge(FusionConstraintError):
    """An edge is not written as two names of ops.

    Fails: ``forbid_fusion=["gelu"]``. Works: ``forbid_fusion=["aten.add.Tensor+gelu@model.py:12"]``.
    """

    template = "{edge!r} names no pair of ops: {problem}"
    hint = "write two names as shardc explain --fusion prints them, such as aten.add.Tensor+gelu@model.py:12"


class NoSuchFusionEdge(FusionConstraintError):
    """An edge names ops that the program does not have."""

    template = "{edge!r} fits no two ops of the program"
    hint = "shardc explain --fusion prints the ops with their lines and numbers"


class FusionRefused(FusionConstraintError):
    """Two ops were to be forced into one kernel, and cannot be one."""

    template = "{edge!r} cannot be one kernel: {why}"
    hint = "take the edge away, or rewrite the line so that the reason is gone"
