"""Errors of recomputation."""

from __future__ import annotations

from shardc.diagnostics.base import ShardcError


class UnknownRecomputed(ShardcError):
    """The model has no module of a name to recompute.

    Fails: ``recompute=["layer.*"]`` for a model with ``layers.0``. Works: ``recompute=["layers.*"]``.
    """

    template = "recompute= names {pattern!r}, which matches no module of the model"
    hint = "the nearest names are {nearest}; write none, full and selective alone, as in recompute='full'"


class NoRepeatedLayers(ShardcError):
    """A policy recomputes repeated layers, but the model has no list of modules that contain others.

    Fails: ``recompute="full"`` for ``nn.Sequential(nn.Linear(8, 8), nn.ReLU())``. Works: ``recompute=["0"]``.
    """

    template = (
        "recompute={policy!r} recomputes repeated layers, but no list of the model has two modules "
        "that contain others"
    )
    hint = "name modules instead, such as recompute=[{example!r}]"


class NeverCalled(ShardcError):
    """The forward does not call the modules to recompute."""

    template = "the forward calls none of the modules that recompute= names"
    hint = "name modules that the forward calls; print(model) shows all modules"


class BudgetTooSmall(ShardcError):
    """No choice of recomputation keeps the step within the memory budget.

    Fails: ``memory_budget="1MB"`` where parameters alone take more. Works: ``least_bytes`` of the error.
    """

    template = (
        "memory_budget is {budget:,} bytes, but a device needs at least {least:,}, even if backward "
        "recomputes all that saves memory; parameters, optimizer state and batch are {given:,} of "
        "them"
    )
    hint = "allow {least:,} bytes, split the batch (micro_batches=), or shard more (plan='zero3')"


class BudgetAndRecompute(ShardcError):
    """Both a memory budget and a policy of recomputation were given.

    Fails: ``memory_budget="40GB", recompute="full"``. Works: either of them.
    """

    template = "memory_budget decides what is recomputed, but recompute={recompute!r} was given too"
    hint = "pass only one of memory_budget= and recompute="


class BudgetOfStages(ShardcError):
    """A memory budget was given for a pipeline, whose ranks hold several micro-batches at once.

    Fails: ``plan="pipeline", memory_budget="40GB"``. Works: ``memory_limit_bytes=40e9``, which cuts stages.
    """

    template = "memory_budget does not support pipelines yet, and the plan has stages along {axis!r}"
    hint = (
        "pass memory_limit_bytes=, which chooses stages that fit, and recompute= for the activations "
        "that stages keep"
    )
