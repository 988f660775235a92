"""Errors of the search over plans."""

from shardc.diagnostics.base import ShardcError


class NoPlanFound(ShardcError):
    """However a step's calls are cut, a device holds more than it has, or no such cuts were found in time."""

    template = "the search found no plan with which {devices} devices of {memory} hold the step"
    hint = "use more devices, a smaller batch, or recompute='full'; shardc plan says what a named plan needs"
