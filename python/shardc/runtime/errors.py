"""Errors of a running artefact, in the form of the compiler's messages: what, where, what to try.

They do not depend on the compiler, which may be missing on an artefact's machine.
"""


class RuntimeFailure(Exception):
    """Base of every error of a running step that a user can cause or must know of.

    ``where``: the file, argument or rank at fault. ``hint``: what to do about it.

    Example:
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss)
        >>> try:
        ...     step(batch[:1])
        ... except shardc.RuntimeFailure as error:
        ...     print(type(error).__name__)
        BatchMismatch
    """

    def __init__(self, what: str, where: str | None = None, hint: str | None = None) -> None:
        self.what, self.where, self.hint = what, where, hint
        lines = [f"{type(self).__name__}: {what}"]
        if where:
            lines.append(f"  at: {where}")
        if hint:
            lines.append(f"  try: {hint}")
        super().__init__("\n".join(lines))


class BadArtefact(RuntimeFailure):
    """A file of the artefact is missing, truncated, changed, or of another version."""


class BadVariable(RuntimeFailure):
    """An environment variable that the runtime reads holds no value of its kind."""


class MissingOperator(RuntimeFailure):
    """A custom operator of the program is not registered, or a library of ``--import`` can't be imported."""


class ExpertOverflow(RuntimeFailure):
    """Under ``expert_capacity`` more rows go to a device's experts than there is room for."""


class NoSuchExpert(RuntimeFailure, IndexError):
    """A row's index of its expert is negative, or not below the number of experts."""


class WorldMismatch(RuntimeFailure):
    """The number of running ranks is not the size of the mesh that the program was compiled for."""


class NoSuchDevice(RuntimeFailure):
    """A rank was to run on a GPU that torch does not see."""


class BatchMismatch(RuntimeFailure):
    """A leaf of the batch is missing, unknown, or of another shape, dtype or value than the compiled one."""


class WeightsMismatch(RuntimeFailure):
    """The ranks' models start from different weights, so that each would hold a part of another model."""


class ShardingMismatch(RuntimeFailure):
    """Two steps share a parameter, a buffer or optimizer state, and shard it differently."""


class StateMismatch(RuntimeFailure):
    """Initial values or a checkpoint lack a tensor of the program, or hold it in another shape."""


class BadCheckpoint(RuntimeFailure):
    """There is no checkpoint, or a file of it is missing, truncated, changed, or of another version."""


class CheckpointNotSaved(RuntimeFailure):
    """A checkpoint can't be written there, or a rank failed while it was: the one before it is whole."""


class StateNotSaved(RuntimeFailure):
    """An object's state holds what a checkpoint does not: only numbers, texts, tensors and lists of them."""


class HyperparameterMismatch(RuntimeFailure):
    """A hyperparameter is unknown, or a setting was changed that is a constant of the program."""


class WrongArgument(RuntimeFailure):
    """An argument of a running step's method is of a wrong kind, or out of range."""


class BadSeed(RuntimeFailure):
    """A seed is not a whole number from -2**62 to 2**62: a step adds the number of steps done to it."""


class StepNotCopied(RuntimeFailure):
    """A step was to be copied or pickled: a copy would share its parameters and its process group."""


class GraphNotCaptured(RuntimeFailure):
    """A CUDA graph was asked for where there are none."""


class CallsNotSeen(RuntimeFailure):
    """The calls of a step were asked for where they cannot be noted: its first, or one on a GPU."""


class OutOfDeviceMemory(RuntimeFailure):
    """The GPU has less memory than the step needs."""


class ResultMismatch(RuntimeFailure):
    """A call returned another dtype or shape than compiled for, or memory that it shares unforeseen."""


class RankStopped(RuntimeFailure):
    """Another rank died, failed, or stopped answering while this one waited for it."""


class NothingToTrace(RuntimeFailure):
    """A timeline is asked of a step that runs as a CUDA graph: its parts are one launch."""


class IndexOutOfRange(RuntimeFailure, IndexError, RuntimeError):
    """A tensor of indices, or a target of a loss, has an element that is none of the dim that it counts in.

    ATen raises an IndexError or a RuntimeError, by operator: who catches either catches this.
    """


class CommunicationError(RuntimeError):
    """A collective failed, most often because another rank ended. Its ``__cause__`` is c10d's own error.

    ``collective``: a description such as ``all_reduce of ranks 0, 1 (model.py:12)``.
    """

    def __init__(self, what: str, collective: str) -> None:
        self.collective = collective
        super().__init__(what)


class PrivateNameMissing(RuntimeFailure, ImportError):
    """The installed PyTorch lacks a private name that shardc uses (``torch_private.py``)."""
