"""Errors of steps that compute each micro-batch separately (``per_micro_batch=True``)."""

from shardc.diagnostics.base import ShardcError


class OneMicroBatch(ShardcError):
    """``per_micro_batch=True`` without micro-batches. Works: ``micro_batches=4, per_micro_batch=True``."""

    template = "per_micro_batch=True needs micro-batches, but micro_batches is {count}"
    hint = "pass micro_batches=n (--micro-batches n), n being 2 or more, or leave per_micro_batch out"


class OutputsOfMicroBatches(ShardcError):
    """``outputs=`` was given with ``per_micro_batch=True``, where each micro-batch has an output of its own.

    Works: ``outputs=["logits"]`` with ``micro_batches=4`` alone.
    """

    template = (
        "outputs= cannot be combined with per_micro_batch=True, which runs each micro-batch as a "
        "separate program"
    )
    hint = "leave per_micro_batch out, or get the outputs from step.evaluate(batch) or step.forward(batch)"


class UnevenMicroBatches(ShardcError):
    """The number of micro-batches does not divide a batch, or that of devices does not divide a micro-batch.

    Fails: a batch of 6 with ``micro_batches=4, per_micro_batch=True``.
    """

    template = "{what} of {size} rows does not divide {into}"
    hint = (
        "use a batch whose number of rows is a multiple of {multiple}: all micro-batches must have one size"
    )


class NoBatchDim(ShardcError):
    """The tensors of a batch have several sizes in dim 0, so it is unknown which to split.

    Fails: ``{"x": [8, 4], "classes": [5]}``. Works: ``{"x": [8, 4], "classes": [1, 5]}``.
    """

    template = "micro_batches splits dim 0 of the batch's tensors, but they differ in its size: {sizes}"
    hint = (
        "give every tensor one row for each sample; a tensor that all micro-batches share needs dim 0"
        " of size 1, or no dim; a constant can be a buffer of the model"
    )


class BufferFeedsLoss(ShardcError):
    """The loss reads a buffer that the forward writes from the batch, such as MoCo's queue.

    A micro-batch would then read what earlier micro-batches wrote.
    """

    template = "the forward writes the buffer {name!r}, and the loss reads it"
    hint = (
        "with per_micro_batch=True a buffer may be written (running statistics) or read by the loss, "
        "not both: leave per_micro_batch out, or update the buffer outside of the step"
    )


class NoGradient(ShardcError):
    """The optimizer reads a value of a micro-batch that is not a gradient, so it cannot be averaged."""

    template = (
        "the optimizer's part of the step reads {op}, which is not a gradient and has no mean over "
        "micro-batches"
    )
    hint = "leave per_micro_batch out"


class NotMeanOfMicroBatches(ShardcError):
    """A loss or gradient is not a floating-point number, so it has no mean over micro-batches."""

    template = "a loss or gradient of type {what} has no mean over micro-batches"
    hint = "leave per_micro_batch out"
