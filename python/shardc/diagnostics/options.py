"""Errors in options: unknown names, and spellings of earlier versions."""

from shardc.diagnostics.base import ShardcError


class UnknownOption(ShardcError):
    """The option does not exist. Fails: ``micro_batch=4``. Works: ``micro_batches=4``."""

    template = "{front_end} has no option {name!r}{nearest}"
    hint = "options are {known}"


class OldSpelling(ShardcError):
    """An option or a value has another name since an earlier version.

    Fails: ``cap_bytes=80e9``, ``--clip 1.0``. Works: ``memory_limit_bytes=80e9``, ``--clip-grad-norm 1.0``.
    """

    template = "{old} is now spelled {new}"
    hint = "write {new}"


class OptionElsewhere(ShardcError):
    """An option was given to a front end that does not have it.

    Fails: ``cuda_graphs=True`` for ``compile_step``. Works: ``torch.compile`` with it in ``options``.
    """

    template = "{name!r} is an option of {owner}, not of {front_end}"
    hint = "leave it out"


class SilencedNothing(ShardcError):
    """``SHARDC_SILENCE`` names an error, or no message at all. Works: ``SHARDC_SILENCE=Padded``."""

    template = "SHARDC_SILENCE names {name!r}, {problem}{nearest}"
    hint = "docs/reference/messages.md lists the ids; they stand in brackets before each remark and warning"
