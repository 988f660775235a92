"""Errors of the tuner."""

from shardc.diagnostics.base import ShardcError
from shardc.runtime.report.messages import ShardcWarning


class EmptySpace(ShardcError):
    """The user's pins and forbidden points leave no legal configuration of a kernel."""

    template = "no legal configuration of the sketches {sketches} is left with the pins {pinned}"
    hint = "pin or forbid less; shardc tune --space prints the legal values"


class MalformedConstraints(ShardcError):
    """A file or option that pins, forbids or adds configurations is malformed.

    Fails: ``{"pin": {"tile_m": "six"}}``. Works: ``{"pin": {"tile_m": 6}}``.
    """

    template = "the constraints of configurations cannot be read: {problem}"
    hint = (
        'write it as {{"pin": {{"tile_m": 6}}, "forbid": [{{"sketch": "matmul", "tile_n": 32}}], "add": []}}'
    )


class UnknownConstraint(ShardcError):
    """The user pins, forbids or adds a name that no kernel has.

    Fails: ``{"pin": {"tile_rows": 6}}``. Works: ``{"pin": {"tile_m": 6}}``.
    """

    template = "no kernel has the {kind} {name!r}"
    hint = "known names are {known}"


class UnknownStrategy(ShardcError):
    """The search strategy does not exist."""

    template = "there is no search strategy {strategy!r}"
    hint = "use one of {known}"


class TaskNotTunable(ShardcError):
    """A kernel cannot be tuned because no reference result exists.

    Its default configuration does not compile or computes wrong values, or its body cannot be evaluated.
    """

    template = "the kernel {task} cannot be tuned: {reason}"
    hint = "it keeps its default configuration; please report this message with the model"


class GpuNotHere(ShardcError):
    """A kernel for an absent GPU was to run."""

    template = "kernels for {target} cannot run here: there is {here}"
    hint = (
        "run it on a machine with such a GPU; without one, shardc tune compiles configurations and "
        "ranks them by a model"
    )


class NothingToTune(ShardcError):
    """A program has no kernels, only library calls."""

    template = "{path} has no kernels to tune"
    hint = "compile it with kernels (without --no-fuse); shardc explain --fusion says what shares a kernel"


class BadPin(ShardcError):
    """The text of a pinned parameter is not a name with a whole number of at least 1."""

    template = "the pin {text!r} cannot be read"
    hint = "write NAME=VALUE, such as block_k=256; shardc tune --space prints the names"


class TuningDatabaseNewer(ShardcError):
    """A later version of shardc made the tuning database, whose tables this one does not know."""

    template = "the tuning database has schema {found}; this shardc knows schemas up to {known}"
    hint = "update shardc, or set SHARDC_TUNING_DB to another file"


class TuningDatabaseNotWritable(ShardcError):
    """The tuning database cannot be opened or written at its path."""

    template = "the tuning database cannot be used: {reason}"
    hint = "set SHARDC_TUNING_DB to a file that can be written"


class NotATuningExport(ShardcError):
    """A file to import has a line that no export of a tuning database contains."""

    template = "line {line} is not part of an export of tuning trials: {reason}"
    hint = "give a file that shardc trials export wrote"


class TuningDatabaseWarning(ShardcWarning):
    """A tuning database is damaged or unreadable, and is not used."""


class NotProfiled(ShardcError):
    """A call of a program did not occur when its steps were measured.

    On this machine the program runs otherwise than on tensors without data.
    """

    template = "a call of the program was not measured: {left}"
    hint = "please report this; shardc run --steps 20 measures whole steps"
