"""Errors of memory planning."""

from shardc.diagnostics.base import ShardcError


class PeakUnknown(ShardcError):
    """A program has an op that cannot run without data, so the sizes of its results are unknown.

    Fails: a custom operator without ``register_fake``. Works: the same with ``torch.library.register_fake``.
    """

    template = "the peak of a program's memory is unknown: {problem}"
    hint = "register a fake implementation of the custom operator: torch.library.register_fake"
