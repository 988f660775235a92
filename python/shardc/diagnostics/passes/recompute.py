"""Errors of recomputation."""

from __future__ import annotations

from shardc.diagnostics.base import ShardcError


class UnknownRecomputed(ShardcError):
    """The model has no module of a name to recompute.

    Fails: ``recompute=["layer.*"]`` for a model with ``layers.0``. Works: ``recompute=["layers.*"]``.
    """

    template = "no module of the model is called {pattern!r}, which is to be recomputed"
    hint = "the nearest names are {nearest}; none, full and selective stand alone, as in recompute='full'"


class NoRepeatedLayers(ShardcError):
    """A policy recomputes repeated layers, but the model has no list of modules that contain others.

    Fails: ``recompute="full"`` for ``nn.Sequential(nn.Linear(8, 8), nn.ReLU())``. Works: ``recompute=["0"]``.
    """

    template = (
        "recompute={policy!r} is of repeated layers, and no list of the model has two modules with parts"
    )
    hint = "name modules instead, such as recompute=[{example!r}]"


class NeverCalled(ShardcError):
    """The forward does not call the modules to recompute."""

    template = "no module that is to be recomputed is called in the forward"
    hint = "name modules whose calls the forward makes: in print(model), those around what takes the memory"


class BudgetTooSmall(ShardcError):
    """No choice of recomputation keeps the step within the memory budget.

    Fails: ``memory_budget="1MB"`` where parameters alone take more. Works: ``least_bytes`` of the error.
    """

    template = (
        "no step was found that needs at most {budget:,} bytes on a device: with all computed again that "
        "saves memory it is {least:,}, of which parameters, optimizer state and batch are {given:,}"
    )
    hint = "allow {least:,} bytes, cut the batch (micro_batches=), or shard more (plan='zero3')"


class BudgetAndRecompute(ShardcError):
    """Both a memory budget and a policy of recomputation were given.

    Fails: ``memory_budget="40GB", recompute="full"``. Works: either of them.
    """

    template = "memory_budget decides what is recomputed, and recompute={recompute!r} was given too"
    hint = "give one of memory_budget= and recompute="


class BudgetOfStages(ShardcError):
    """A memory budget was given for a pipeline, whose ranks hold several micro-batches at once.

    Fails: ``plan="pipeline", memory_budget="40GB"``. Works: ``memory_limit_bytes=40e9``, which cuts stages.
    """

    template = "memory_budget is not for pipelines yet, and the plan cuts stages along {axis!r}"
    hint = "give memory_limit_bytes=, by which stages are cut, and recompute= for what stages keep"
