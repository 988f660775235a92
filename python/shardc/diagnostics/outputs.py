"""Errors in a step's outputs besides its loss, and in programs that only run a model forward."""

from shardc.diagnostics.base import ShardcError


class OutputNotFound(ShardcError):
    """``outputs=`` names a part that the model's output does not have.

    Fails: ``outputs=["logit"]`` for a model that returns ``logits``. Works: ``outputs=["logits"]``.
    """

    template = "outputs= asks for {part!r}, but the model's output has no such part: {output}"
    hint = "{hint}"


class OutputNotTensor(ShardcError):
    """A value named in ``outputs=``, or the result of its function, is no tensor.

    Fails: ``lambda output, batch: output.logits.shape[0]``. Works: a function that returns a tensor.
    """

    template = "the output {name!r} is {found}, not a tensor"
    hint = "name a part that is a tensor, or return one: torch.tensor(n) for a number"
