"""Errors about recomputation."""

from __future__ import annotations

from shardc.diagnostics.base import ShardcError


class UnknownRecomputed(ShardcError):
    """A module is to be recomputed that the model does not have.

    Fails: ``recompute=["layer.*"]`` for a model with ``layers.0``. Works: ``recompute=["layers.*"]``.
    """

    template = "no module of the model is called {pattern!r}, which is to be recomputed"
    hint = "the nearest names are {nearest}; none, full and selective stand alone, as in recompute='full'"


class NoRepeatedLayers(ShardcError):
    """Layers are to be recomputed, and the model has no list of modules that contain others.

    Fails: ``recompute="full"`` for ``nn.Sequential(nn.Linear(8, 8), nn.ReLU())``. Works: ``recompute=["0"]``.
    """

    template = (
        "recompute={policy!r} is of repeated layers, and no list of the model has two modules with parts"
    )
    hint = "name modules instead, such as recompute=[{example!r}]"


class NeverCalled(ShardcError):
    """Modules that are to be recomputed are not called in the forward."""

    template = "no module that is to be recomputed is called in the forward"
    hint = "name modules whose calls the forward makes: in print(model), those around what takes the memory"
