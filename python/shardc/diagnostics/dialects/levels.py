"""Errors in the contracts of levels."""

from shardc.diagnostics.base import ShardcError


class LevelBroken(ShardcError):
    """A module violates the contract of its level."""

    template = "the module is not at level {level}: {problem}"
    hint = (
        "run the passes before this one first, and give a mesh: 'dist-apply-plan{{mesh=data=2}},rank' does "
        "both; in shardc compile this is a bug, please report it"
    )


class RankProgramBroken(ShardcError):
    """The program of a pipeline's rank deviates from the schedule, or sends a message that no rank expects.

    Fails: two ``pipe.send`` to one rank that have changed places. Works: both in the order of the receives.
    """

    template = "the program of rank {rank} does not follow the schedule {schedule}: {problem}"
    hint = (
        "undo edits of the program; in shardc compile this is a bug, please report it with the "
        "schedule and the model"
    )
    exit_code = 1


class UnknownOperation(ShardcError):
    """A program for passes contains an op that is not an operator of PyTorch."""

    template = "PyTorch has no operator {op} in this process"
    hint = "import the library that registers it, or decompose it before this pass"


class UnreadableOperation(ShardcError):
    """An op has operands or results that are not value tensors with a shape, or is not a valid call."""

    template = "{op} can't be sharded: {problem}"
    hint = "write it as an ATen call on value tensors (!torch.vtensor) with static shapes"


class ManualRegionNotYet(ShardcError):
    """A program with ``dist.manual`` was to be partitioned."""

    template = "dist.manual can be parsed, verified and executed, but passes do not partition it yet"
    hint = "write its body with ATen ops and dist.constraint instead"
