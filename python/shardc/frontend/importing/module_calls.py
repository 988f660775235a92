"""Which calls of a model's modules the nodes of a trace are of, where a later pass has to know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache

import torch

MODULE = "shardc_module"
"""In the meta data of a node: the call that it is part of, ``layers.3``, or ``layers.3#1`` for the second."""


class ModuleCalls:
    """The calls of the modules ``names`` of a model in one trace; ``current``: the one that runs, or empty.

    A module that is called inside of another's call is part of that.
    """

    def __init__(self, model: torch.nn.Module, names: Collection[str] = ()) -> None:
        self.current = ""
        self._paths = {id(module): name for name, module in model.named_modules()}
        self._counts: Counter[str] = Counter()
        self.noted = [model.get_submodule(name) for name in names]

    @contextmanager
    def call(self, module: torch.nn.Module) -> Iterator[None]:
        """Nodes that are made meanwhile are of a call of ``module``."""
        outer = self.current
        self.current = outer or self._next(self._paths[id(module)])
        try:
            yield
        finally:
            self.current = outer

    def of_copy(self, source: torch.nn.Module, copy: torch.nn.Module) -> Callable[[str | None], str]:
        """Calls inside of a copied call of ``source`` -> those inside of its copy, a call of ``copy``."""
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
