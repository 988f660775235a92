"""Levels of a compiled step. Modules are printed, and texts parsed, when first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch_mlir import ir

from shardc.dialects.context import new_context
from shardc.passes.manager.program import copy_module

GLOBAL, ANNOTATED, RANK, PIPELINE, KERNEL = "1-global", "2-annotated", "3-rank", "3-pipeline", "4-kernel"


class Levels(Mapping[str, str]):
    """Mapping from a level's name (``1-global``) to its text with source lines, in the order of ``keep``.

    ``texts``: levels that were printed before, as when a step is loaded from the cache.
    """

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._modules: dict[str, ir.Module] = {}
        self._texts: dict[str, str] = dict(texts or {})
        self._names = dict.fromkeys(self._texts)

    def keep(self, name: str, module: ir.Module) -> None:
        """Add a level: a copy of ``module`` as it is now."""
        self._names[name] = None
        self._modules[name] = copy_module(module)

    def module(self, name: str) -> ir.Module:
        """Return a level's module, which callers must not change. Raises KeyError."""
        if name not in self._modules:
            others = [module.context for module in self._modules.values()]
            self._modules[name] = ir.Module.parse(self._texts[name], (others or [new_context()])[0])
        return self._modules[name]

    def __getitem__(self, name: str) -> str:
        if name not in self._texts:
            self._texts[name] = self._modules[name].operation.get_asm(enable_debug_info=True)
        return self._texts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
