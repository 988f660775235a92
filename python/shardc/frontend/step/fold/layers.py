"""Finds a model's equal layers and observes their calls in a trace by changing their classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from shardc.frontend.step.fold.folding import Folding
from shardc.frontend.step.fold.signature import INDEX, is_index, signature

LISTS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)
FEWEST = 3
"""Smallest number of equal modules worth copying, since two are traced."""


def layers(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules with children, in lists of modules, that occur several times."""
    lists = [module for module in model.modules() if isinstance(module, LISTS)]
    members = {id(layer): layer for parent in lists for layer in parent.children()}
    kinds: dict[Hashable, list[torch.nn.Module]] = defaultdict(list)
    for layer in members.values():
        if any(True for _ in layer.children()) and not isinstance(layer, LISTS[:2]):
            kinds[signature(layer)].append(layer)
    return [m for kind, found in kinds.items() if kind is not None and len(found) >= FEWEST for m in found]


@contextmanager
def seen_by(folding: Folding, model: torch.nn.Module) -> Iterator[None]:
    """Route calls of the model's layers through ``folding``, and report reads of a layer's index."""
    found = layers(model)
    called = set(map(id, found))
    made: dict[tuple[type, bool, tuple[str, ...]], type] = {}
    held = {id(module): module for layer in found for module in layer.modules()}.values()
    original = [(module, type(module)) for module in held]
    try:
        for module, kind in original:
            names = tuple(n for n in INDEX if is_index(n, vars(module).get(n)) and not hasattr(kind, n))
            if id(module) in called or names:
                key = (kind, id(module) in called, names)
                if key not in made:
                    made[key] = _subclass(*key, folding)
                object.__setattr__(module, "__class__", made[key])  # bypasses the module's own __setattr__
        yield
    finally:
        for module, kind in original:
            object.__setattr__(module, "__class__", kind)


def _subclass(kind: type, is_called: bool, names: tuple[str, ...], folding: Folding) -> type:
    bases = (_Seen, kind) if is_called else (Quiet, kind)
    held = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind.__name__, bases, {**held, "_folding": folding, **{n: _Index(n, folding) for n in names}})


class Quiet:
    """First base of a generated class, which must not register with the user's ``__init_subclass__``."""

    def __init_subclass__(cls, **_: object) -> None:
        pass


class _Seen(Quiet):
    """First base of an observed layer's class."""

    _folding: Folding

    def __call__(self, *args: object, **kwargs: object) -> object:
        layer: Any = self
        return self._folding.call(layer, super().__call__, args, kwargs)  # type: ignore[misc]


class _Index:
    """Class attribute that records when it is read from an object."""

    def __init__(self, name: str, folding: Folding) -> None:
        self._name, self._folding = name, folding

    def __get__(self, module: torch.nn.Module | None, _: type | None = None) -> object:
        if module is None or self._name not in vars(module):
            raise AttributeError(self._name)
        self._folding.index_reads += 1
        return vars(module)[self._name]

    def __set__(self, module: torch.nn.Module, value: object) -> None:
        vars(module)[self._name] = value
