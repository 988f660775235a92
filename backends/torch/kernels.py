"""Calls of compiled kernels as Python text: ``add_gelu, = add_gelu_0(x, bias)``, with every kernel bound once at the
program's head. The program's globals must have ``kernel``: :meth:`shardc.runtime.kernels.Library.kernel`.
"""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.torch.names import Names
from shardc.dialects.kern.kernel import kernel_name, result_types

KERNEL = "kern.kernel"


class Kernels:
    """The kernels of a program and the names that they are bound to."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._bound: dict[str, tuple[str, str]] = {}

    def call(self, op: ir.Operation, operands: list[str]) -> str:
        """The text of one call, which gives a tuple."""
        name = kernel_name(op)
        if name not in self._bound:
            outputs = ", ".join(f"({t.shape}, {t.dtype})" for t in result_types(op))
            self._bound[name] = self._names.exact(name), f'kernel("{name}", [{outputs}])'
        return f"{self._bound[name][0]}({', '.join(operands)})"

    def head(self) -> list[str]:
        """The lines that bind them, in order of first use."""
        return [f"{name} = {text}" for name, text in self._bound.values()]
