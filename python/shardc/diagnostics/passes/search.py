"""Errors of the search over plans."""

from shardc.diagnostics.base import ShardcError


class NoPlanFound(ShardcError):
    """No way to cut a step's calls leaves each value in a layout that its readers can have."""

    template = "the search found no plan: {why}"
    hint = "name a plan, such as plan='data', and report the step: cutting nothing is always possible"
