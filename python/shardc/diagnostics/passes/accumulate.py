"""Errors of steps that run each micro-batch as a program of its own."""

from shardc.diagnostics.base import ShardcError


class OneMicroBatch(ShardcError):
    """``per_micro_batch=True`` without micro-batches. Works: ``micro_batches=4, per_micro_batch=True``."""

    template = "per_micro_batch=True needs micro-batches, and micro_batches is {count}"
    hint = "pass micro_batches=n, from 2 (--micro-batches n), or leave per_micro_batch out"


class OutputsOfMicroBatches(ShardcError):
    """``outputs=`` with ``per_micro_batch=True``: an output of each micro-batch by itself has no one value.

    Works: ``outputs=["logits"]`` with ``micro_batches=4`` alone.
    """

    template = "outputs= does not go with per_micro_batch=True, whose micro-batches are programs of their own"
    hint = "leave per_micro_batch out, or take outputs of step.evaluate(batch) or step.forward(batch)"


class UnevenMicroBatches(ShardcError):
    """A batch does not divide into micro-batches that are programs of their own, or these over devices.

    Fails: a batch of 6 with ``micro_batches=4, per_micro_batch=True``.
    """

    template = "{what} of {size} rows does not divide {into}"
    hint = "take a batch of a multiple of {multiple} rows: each micro-batch is traced once, at one size"


class NoBatchDim(ShardcError):
    """The tensors of a batch have several sizes in dim 0: it is not known which are cut.

    Fails: ``{"x": [8, 4], "classes": [5]}``. Works: ``{"x": [8, 4], "classes": [1, 5]}``.
    """

    template = "micro-batches are cut from dim 0 of the batch's tensors, and these differ in it: {sizes}"
    hint = (
        "give every tensor as many rows as the batch has, or dim 0 of size 1 (or no dim) where all "
        "micro-batches see the same; constants can be buffers of the model"
    )


class BufferFeedsLoss(ShardcError):
    """The loss reads a buffer that the forward writes from the batch, such as MoCo's queue.

    What a micro-batch reads then depends on what all before it have written.
    """

    template = "the buffer {name!r} is written by the forward, and the loss depends on it"
    hint = (
        "with per_micro_batch=True a buffer may be written (running statistics) or read by the loss, not "
        "both: leave per_micro_batch out, or update it outside of the step"
    )


class NoGradient(ShardcError):
    """The optimizer reads something of a micro-batch that is not a gradient, so no mean can stand for it."""

    template = "the optimizer's part of the step reads {op}, which is no gradient"
    hint = "leave per_micro_batch out"


class NotMeanOfMicroBatches(ShardcError):
    """A loss or gradient that is no floating-point number has no mean over micro-batches."""

    template = "{what} has no mean over micro-batches"
    hint = "leave per_micro_batch out"
