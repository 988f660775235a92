"""Errors of writing, reading and running artefacts."""

from shardc.diagnostics.base import ShardcError


class NotOurFolder(ShardcError):
    """The output folder exists and holds files that shardc did not write, which would be lost."""

    template = "{folder} exists and {problem}; it is not overwritten"
    hint = "name a new or empty folder, or remove this one yourself"


class BadArtefact(ShardcError):
    """An artefact is truncated, was changed, has another version, or was made from another model."""

    template = "{problem}"
    hint = "{hint}"


class MissingOperator(ShardcError):
    """An artefact calls a custom operator that is not registered, or ``--import`` cannot import a library."""

    template = "{problem}"
    hint = "{hint}"


class BadCheckpointFolder(ShardcError):
    """``--load`` names no checkpoint, or ``--save`` a folder in which other files would be lost."""

    template = "{folder} {problem}"
    hint = "{hint}"


class MeshSizeMismatch(ShardcError):
    """The number of processes differs from the size of the artefact's mesh."""

    template = "the artefact is for a mesh of {mesh_size} ranks ({mesh}), not for {nproc} processes"
    hint = "run it with --nproc {mesh_size}, or compile it for a mesh of {nproc}"


class RankFailed(ShardcError):
    """A rank of a run died or ended with an error, and the others were stopped."""

    template = "rank {rank} {how}; the other ranks were stopped"
    hint = "{hint}"
    exit_code = 1


class TooFewRanks(RankFailed):
    """More ranks of an elastic run were killed than it may lose."""

    template = "{lost}: {left} of {nproc} processes are left, but --elastic allows no fewer than {least}"
    hint = "start it again, which goes on from the last checkpoint, or raise --elastic; " + (
        "a process is most often killed because it took too much memory"
    )


class NotOfASource(ShardcError):
    """``shardc run`` got an option for scripts with a folder, or one for folders with a script.

    Fails: ``shardc run out/ --nproc 4 --elastic 1``: a folder is compiled for one mesh.
    Works: ``shardc run train.py --nproc 4 --elastic 1``.
    """

    template = "{option} is for a {other}, but {source} is a {kind}"
    hint = "leave {option} out, or name a {other}"


class RankRefused(RankFailed):
    """A rank ended because its input was bad; it printed the problem and the place."""

    exit_code = 2
