"""Errors of the tuner."""

from shardc.diagnostics.base import ShardcError
from shardc.runtime.report.messages import ShardcWarning


class EmptySpace(ShardcError):
    """What the user pins and forbids leaves no legal configuration of a kernel."""

    template = "no legal configuration is left of the sketches {sketches} under the pins {pinned}"
    hint = "pin or forbid less; shardc tune --space prints what is legal"


class MalformedConstraints(ShardcError):
    """A file or option that pins, forbids or adds configurations is not of the form.

    Fails: ``{"pin": {"tile_m": "six"}}``. Works: ``{"pin": {"tile_m": 6}}``.
    """

    template = "what is said of configurations cannot be read: {problem}"
    hint = '{{"pin": {{"tile_m": 6}}, "forbid": [{{"sketch": "matmul", "tile_n": 32}}], "add": []}}'


class UnknownConstraint(ShardcError):
    """A name in what the user pins, forbids or adds is none of the kernels'.

    Fails: ``{"pin": {"tile_rows": 6}}``. Works: ``{"pin": {"tile_m": 6}}``.
    """

    template = "no kernel has the {kind} {name!r}"
    hint = "there are: {known}"


class UnknownStrategy(ShardcError):
    """There is no search strategy of this name."""

    template = "there is no search strategy {strategy!r}"
    hint = "use one of {known}"


class TaskNotTunable(ShardcError):
    """A kernel's default configuration does not compile or compute what its body says, or its body cannot be
    evaluated: nothing can be compared with it.
    """

    template = "the kernel {task} cannot be tuned: {reason}"
    hint = "it keeps its default configuration; please report this message with the model"


class GpuNotHere(ShardcError):
    """A kernel for a GPU was to be run where that GPU is not."""

    template = "kernels for {target} cannot be run here: there is {here}"
    hint = "run it on a machine that has one; shardc tune compiles points for it here, and ranks them"


class NothingToTune(ShardcError):
    """A program has no kernels, or no more than calls of libraries."""

    template = "{path} has no kernels to tune"
    hint = "compile it with kernels (without --no-fuse); shardc explain --fusion says what shares a kernel"


class BadPin(ShardcError):
    """The text of a pinned parameter is no name with a whole number of at least 1."""

    template = "{text!r} pins nothing"
    hint = "write NAME=VALUE, such as block_k=256; shardc tune --space prints the names"


class TuningDatabaseNewer(ShardcError):
    """A tuning database was made by a later shardc, whose tables this one does not know."""

    template = "the tuning database has schema {found}; this shardc knows schemas up to {known}"
    hint = "update shardc, or name another file in $SHARDC_TUNING_DB"


class TuningDatabaseNotWritable(ShardcError):
    """A tuning database cannot be opened or written where it should lie."""

    template = "the tuning database cannot be used: {reason}"
    hint = "name a file that can be written in $SHARDC_TUNING_DB"


class NotATuningExport(ShardcError):
    """A file that was to be imported has a line that no export of a tuning database has."""

    template = "line {line} is not of an export of tuning trials: {reason}"
    hint = "such files are written by shardc trials export"


class TuningDatabaseWarning(ShardcWarning):
    """A tuning database was damaged, or could not be read, and is not used."""


class NotProfiled(ShardcError):
    """A call of a program was not seen when its steps were measured: on this machine it runs otherwise than
    on tensors without data.
    """

    template = "a call of the program was not measured: {left}"
    hint = "report it; shardc run --steps 20 says what a step takes"
