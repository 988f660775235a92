"""Errors of the plan of a program's memory."""

from shardc.diagnostics.base import ShardcError


class PeakUnknown(ShardcError):
    """A program holds an op that cannot be run without data, so that nothing says how large its results are.

    Fails: a custom operator without ``register_fake``. Works: the same with ``torch.library.register_fake``.
    """

    template = "the peak of a program's memory is not known: {problem}"
    hint = "give a custom operator a torch.library.register_fake"
