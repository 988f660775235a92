"""Errors of fusion constraints: malformed edges, edges that match no ops, and impossible edges."""

from shardc.diagnostics.base import ShardcError


class FusionConstraintError(ShardcError):
    """Base of errors in fusion that a user forbids or forces."""


class BadFusionEdge(FusionConstraintError):
    """An edge is not a pair of ops' names.

    Fails: ``forbid_fusion=["gelu"]``. Works: ``forbid_fusion=["aten.add.Tensor+gelu@model.py:12"]``.
    """

    template = "{edge!r} is not a valid pair of ops: {problem}"
    hint = "write two names as shardc explain --fusion prints them, such as aten.add.Tensor+gelu@model.py:12"


class NoSuchFusionEdge(FusionConstraintError):
    """An edge names ops that the program does not have."""

    template = "{edge!r} matches no two ops of the program"
    hint = "shardc explain --fusion prints the ops with their lines and numbers"


class FusionRefused(FusionConstraintError):
    """Two ops cannot be forced into one kernel."""

    template = "{edge!r} cannot share one kernel: {why}"
    hint = "leave out this pair of ops, or rewrite the line so that the reason no longer applies"
