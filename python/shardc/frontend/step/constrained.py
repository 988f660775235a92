"""Constrains layouts of modules' outputs in a trace, without changes to the modules' code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

import shardc.runtime.operators.constrain  # noqa: F401  (registers shardc::constrain)
from shardc.diagnostics.passes.plan import ConstrainsNothing, TooManyDims
from shardc.frontend.step.fold.layers import Quiet
from shardc.runtime.torch_private import pytree


@dataclass(frozen=True)
class Wanted:
    """Layout of the output of modules that match ``pattern``: entries for ``dims`` dims, as ``text``."""

    pattern: str
    text: str
    dims: int


Layouts = Mapping[str, Wanted]
"""Layouts by the name of a module."""


@contextmanager
def constrained(model: torch.nn.Module, layouts: Layouts) -> Iterator[None]:
    """Apply ``shardc::constrain`` to the outputs of the named modules inside the block.

    Their classes are replaced meanwhile. The constraint applies to a tensor, or to the first tensor of
    several. Layers with different layouts get different classes, so that none is traced as a copy of another.
    """
    original = [(name, (module := model.get_submodule(name)), type(module)) for name in layouts]
    made: dict[tuple[type, Wanted], type] = {}
    applied: set[str] = set()
    try:
        for name, module, kind in original:
            key = kind, layouts[name]
            if key not in made:
                held = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
                held |= {"_constrained": (layouts[name], applied)}
                made[key] = type(kind.__name__, (_Constrained, kind), held)
            object.__setattr__(module, "__class__", made[key])  # bypasses the module's own __setattr__
        yield
    finally:
        for _, module, kind in original:
            object.__setattr__(module, "__class__", kind)
    for wanted in layouts.values():
        if wanted.pattern not in applied:
            raise ConstrainsNothing(pattern=wanted.pattern, problem="which the step never calls")


class _Constrained(Quiet):
    """First base class of a constrained module."""

    _constrained: tuple[Wanted, set[str]]

    def __call__(self, *args: object, **kwargs: object) -> object:
        wanted, applied = self._constrained
        applied.add(wanted.pattern)
        leaves, tree = pytree.tree_flatten(super().__call__(*args, **kwargs))  # type: ignore[misc]
        place = next((n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)), None)
        if place is None:
            raise ConstrainsNothing(pattern=wanted.pattern, problem="whose output has no tensor")
        x = leaves[place]
        if wanted.dims > x.dim():
            raise TooManyDims(name=wanted.pattern, given=wanted.dims, shape=list(x.shape))
        leaves[place] = torch.ops.shardc.constrain(x, wanted.text)
        return pytree.tree_unflatten(leaves, tree)
