"""Symbolic sizes of a traced graph as attributes of its module, whose types show each of them as ``?``.

An op of such a graph has ``dist.shapes``: for each result an affine map over the graph's symbols, such as
``()[s0, s1] -> (s0, 64)`` for a tensor and ``()[s0, s1] -> (s0 * s1)`` for an integer. Arguments have
``dist.shape``. The function has ``dist.symbols``: each symbol's value in the compiled call. A size that is no
product of symbols, such as ``s0 + 1``, is a symbol of its own.
"""

from __future__ import annotations

import sympy
import torch
from torch.fx import Graph
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch_mlir import ir

from shardc.dialects.kern.size import AnySize, Size, Symbol, shape_map
from shardc.frontend.nodes import UNBACKED_HINT, listed


class SizeTable:
    """Symbols of ``graph``, numbered in order of first use."""

    def __init__(self, graph: Graph) -> None:
        self._symbols: dict[sympy.Expr, Symbol] = {}
        self._known: dict[sympy.Expr, AnySize] = {}
        for node in graph.nodes:
            for value in listed(node.meta.get("val")):
                self._shape(value)

    @property
    def hints(self) -> list[int]:
        return [symbol.hint for symbol in self._symbols.values()]

    def shape(self, value: object, context: ir.Context) -> ir.Attribute | None:
        """Return the attribute of a traced tensor or integer; None for other values."""
        sizes = self._shape(value)
        return None if sizes is None else shape_map(sizes, list(self._symbols.values()), context)

    def shapes(self, value: object, context: ir.Context) -> ir.Attribute | None:
        """Return the attribute of an op that makes ``value``; None if no size is symbolic."""
        values = listed(value)
        if not any(_is_symbolic(v) for v in values):
            return None
        maps = [self.shape(v, context) or shape_map((), (), context) for v in values]
        return ir.ArrayAttr.get(maps, context)

    def _shape(self, value: object) -> tuple[AnySize, ...] | None:
        if isinstance(value, torch.Tensor):
            return tuple(self._size(n) for n in value.shape)
        return (self._size(value),) if isinstance(value, torch.SymInt) else None

    def _size(self, size: int | torch.SymInt) -> AnySize:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression not in self._known:
            self._known[expression] = self._product(expression, size.node.shape_env)
        return self._known[expression]

    def _product(self, expression: sympy.Expr, env: ShapeEnv) -> AnySize:
        found: AnySize = 1
        for factor in sympy.Mul.make_args(sympy.factor_terms(expression)):
            base, power = factor.as_base_exp()
            if factor.is_Integer:
                found *= int(factor)
            elif power.is_Integer and power > 0 and base.is_integer:
                for _ in range(int(power)):
                    found *= self._symbol(base, env)
            else:
                return self._symbol(expression, env)
        return found

    def _symbol(self, expression: sympy.Expr, env: ShapeEnv) -> Size:
        if expression not in self._symbols:
            hint = int(env.optimization_hint(expression, fallback=UNBACKED_HINT))
            self._symbols[expression] = Symbol(len(self._symbols), hint)
        return Size.of(self._symbols[expression])


def _is_symbolic(value: object) -> bool:
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(n, torch.SymInt) for n in sizes)
