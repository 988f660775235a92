"""Records which module call each traced node belongs to, for later passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache

import torch

MODULE = "shardc_module"
"""Metadata key of a node's module call: ``layers.3``, or ``layers.3#1`` for its second call."""


class ModuleCalls:
    """Calls of the modules ``names`` in one trace. ``current`` is the running one, or empty.

    A module call inside another recorded call belongs to the outer one.
    """

    def __init__(self, model: torch.nn.Module, names: Collection[str] = ()) -> None:
        self.current = ""
        self._paths = {id(module): name for name, module in model.named_modules()}
        self._counts: Counter[str] = Counter()
        self.noted = [model.get_submodule(name) for name in names]

    @contextmanager
    def call(self, module: torch.nn.Module) -> Iterator[None]:
        """Assign nodes made inside the block to a call of ``module``."""
        outer = self.current
        self.current = outer or self._next(self._paths[id(module)])
        try:
            yield
        finally:
            self.current = outer

    def of_copy(self, source: torch.nn.Module, copy: torch.nn.Module) -> Callable[[str | None], str]:
        """Return a map from calls inside a copied call of ``source`` to calls inside its copy ``copy``."""
        old, new = (f"{self._paths[id(module)]}." for module in (source, copy))

        @cache
        def moved(call: str | None) -> str:
            if self.current or call is None or not call.startswith(old):
                return self.current
            return self._next(new + call.removeprefix(old).partition("#")[0])

        return moved

    def _next(self, path: str) -> str:
        number = self._counts[path]
        self._counts[path] += 1
        return f"{path}#{number}" if number else path
