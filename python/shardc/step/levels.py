"""A program at each level, for whoever wants to read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch_mlir import ir

from shardc.passes.manager.program import copy_module


class Levels(Mapping[str, str]):
    """Texts with source lines by level (``1-global``), in the order in which they were kept, printed when
    asked for."""

    def __init__(self) -> None:
        self._modules: dict[str, ir.Module] = {}
        self._texts: dict[str, str] = {}

    def keep(self, name: str, module: ir.Module) -> None:
        """``module`` as it is now."""
        self._modules[name] = copy_module(module)

    def __getitem__(self, name: str) -> str:
        if name not in self._texts:
            self._texts[name] = self._modules[name].operation.get_asm(enable_debug_info=True)
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)
