"""Errors of a running step: what is wrong, where, and what to try, as in the compiler's messages.

They do not depend on the compiler, which may be missing on an artefact's machine.
"""


class RuntimeFailure(Exception):
    """Base of every error of a running step that a user can cause or must handle.

    ``where`` is the file, argument or rank at fault. ``hint`` is the suggested fix.

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
    """More rows go to a device's experts than ``expert_capacity`` allows."""


class NoSuchExpert(RuntimeFailure, IndexError):
    """A row's expert index is negative, or not below the number of experts."""


class WorldMismatch(RuntimeFailure):
    """The number of running ranks is not the size of the mesh that the program was compiled for."""


class NoSuchDevice(RuntimeFailure):
    """A rank is assigned a GPU that torch does not find."""


class BatchMismatch(RuntimeFailure):
    """A leaf of the batch is missing, unknown, or of another shape, dtype or value than the compiled one."""


class WeightsMismatch(RuntimeFailure):
    """The ranks' models start from different weights, so their shards would belong to different models."""


class ShardingMismatch(RuntimeFailure):
    """Two steps share a parameter, a buffer or optimizer state, and shard it differently."""


class StateMismatch(RuntimeFailure):
    """Initial values or a checkpoint lack a tensor of the program, or hold it in another shape."""


class BadCheckpoint(RuntimeFailure):
    """There is no checkpoint, or a file of it is missing, truncated, changed, or of another version."""


class CheckpointNotSaved(RuntimeFailure):
    """A checkpoint can't be written, or a rank failed during the write. The previous one is intact."""


class StateNotSaved(RuntimeFailure):
    """An object's state has a value of a type that checkpoints do not store."""


class HyperparameterMismatch(RuntimeFailure):
    """A hyperparameter is unknown, or a changed setting is a constant of the program."""


class WrongArgument(RuntimeFailure):
    """An argument of a running step's method is of a wrong kind, or out of range."""


class BadSeed(RuntimeFailure):
    """A seed is not an integer from -2**62 to 2**62. Each step adds the number of finished steps to it."""


class StepNotCopied(RuntimeFailure):
    """A step cannot be copied or pickled: the copy would share its parameters and its process group."""


class GraphNotCaptured(RuntimeFailure):
    """A CUDA graph was requested for a step that does not support it."""


class CallsNotSeen(RuntimeFailure):
    """The calls of a step cannot be recorded in its first run, or on a GPU."""


class OutOfDeviceMemory(RuntimeFailure):
    """The GPU has less memory than the step needs."""


class ResultMismatch(RuntimeFailure):
    """A call returned a dtype or shape that differs from the compiled one, or unexpectedly shared memory."""


class RankStopped(RuntimeFailure):
    """Another rank died, failed, or stopped answering while this one waited for it."""


class NothingToTrace(RuntimeFailure):
    """A timeline was requested for a step that runs as a CUDA graph, which is a single launch."""


class IndexOutOfRange(RuntimeFailure, IndexError, RuntimeError):
    """An index, or a target of a loss, is out of range for its dim.

    ATen raises an IndexError or a RuntimeError, depending on the operator. This class derives from both.
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
