"""Calls of compiled kernels as Python text: ``add_gelu, = add_gelu_0(x, bias)``.

Each kernel is bound once at the program's head. The program's globals must have ``kernel`` and ``kernels``:
:meth:`shardc.runtime.kernels.library.Library.kernel` and ``batch``.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from shardc.backends.torch.names import Names
from shardc.dialects.kern.kernel import checks, in_place, kernel_name, kernel_shapes, result_types
from shardc.dialects.kern.size import AnySize, evaluate
from shardc.passes.fuse.bodies.flat import FLAT, element_count

KERNEL = "kern.kernel"


class Kernels:
    """Kernels of a program, and the names that they are bound to."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._bound: dict[str, str] = {}

    def call(self, op: ir.Operation, operands: list[str]) -> str:
        """Return the text of a call, which returns a tuple."""
        more = f", {element_count(op)}" if FLAT in op.attributes else ""
        found = checks(op)
        more += f", checks={found}" if found else ""
        bound = self._bind(kernel_name(op), f'kernel("{kernel_name(op)}", {_outputs(op)}{more})')
        return f"{bound}({', '.join(operands)})"

    def batch(self, ops: Sequence[ir.Operation], operands: Sequence[list[str]]) -> str:
        """Return the text of one call of a flat kernel for several tuples, which returns a list of tuples."""
        members = ", ".join(f"({element_count(op)}, {_outputs(op)})" for op in ops)
        bound = self._bind(kernel_name(ops[0]), f'kernels("{kernel_name(ops[0])}", [{members}])')
        tuples = [f"({', '.join(each)}{',' if each else ''})" for each in operands]
        return f"{bound}({', '.join(tuples)})"

    def _bind(self, name: str, text: str) -> str:
        """Return the program's name for ``text``, which is evaluated once."""
        if text not in self._bound:
            self._bound[text] = self._names.exact(name)
        return self._bound[text]

    def head(self) -> list[str]:
        """Return the lines that bind the kernels, in order of first use."""
        return [f"{name} = {text}" for text, name in self._bound.items()]


def _outputs(op: ir.Operation) -> str:
    places = in_place(op)
    made = zip(kernel_shapes(op)[1], result_types(op), strict=True)
    forms = [str(places[n]) if n in places else f"({_shape(s)}, {t.dtype})" for n, (s, t) in enumerate(made)]
    return f"[{', '.join(forms)}]"


def _shape(shape: tuple[AnySize, ...]) -> tuple[int | str, ...]:
    """Return a shape for the runtime. A symbolic size is text in the integer arguments: ``"n0 * 64"``."""
    write = "{} * {}".format, "{} + {}".format
    return tuple(
        n if isinstance(n, int) else evaluate(n, lambda s: f"n{s.number}", str, *write) for n in shape
    )
