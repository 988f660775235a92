"""Errors in the contracts between passes."""

from shardc.diagnostics.base import ShardcError


class LevelBroken(ShardcError):
    """A module does not keep the contract of the level it should be at."""

    template = "the module is not at level {level}: {problem}"
    hint = (
        "run the passes before this one first, and give a mesh: 'dist-apply-plan{{mesh=data=2}},rank' does "
        "both; in shardc compile this is a bug, please report it"
    )


class RankProgramBroken(ShardcError):
    """The program of a pipeline's rank does not do what the schedule says, or sends what nobody expects.

    Fails: two ``pipe.send`` to one rank that have changed places. Works: both in the order of the receives.
    """

    template = "the program of rank {rank} is not what the schedule {schedule} says: {problem}"
    hint = (
        "put back what was edited; in shardc compile this is a bug, please report it with the schedule and "
        "the model"
    )
    exit_code = 1


class UnknownOperation(ShardcError):
    """An op that is not an operator of PyTorch, in a program that passes are to read."""

    template = "{op} is no operator that PyTorch knows in this process"
    hint = "import the library that registers it, or decompose it before this pass"


class UnreadableOperation(ShardcError):
    """An op whose operands or results are no value tensors with a shape, or that cannot be such a call."""

    template = "{op} can't be sharded: {problem}"
    hint = "passes of level 1 and 2 take ATen calls on !torch.vtensor with static shapes"


class ManualRegionNotYet(ShardcError):
    """``dist.manual`` in a program that is to be partitioned."""

    template = "dist.manual can be parsed, verified and executed, but passes do not partition it yet"
    hint = "write what it does with ATen ops and dist.constraint"
