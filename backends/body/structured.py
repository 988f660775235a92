"""Kernels whose body is one op of ``kern`` (such as attention or scatter_add) instead of loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch_mlir import ir

from shardc.backends.body.graph import Graph
from shardc.backends.body.read_graph import read_graph
from shardc.backends.body.signature import config_of, in_place_of, symbols_and_shapes
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern.size import AnySize, Symbol

_ANY_RESULTS = ("kern.scatter_add", "kern.linear_cross_entropy", "kern.linear_cross_entropy_backward")
"""Ops whose results a kernel may omit."""
_TERMS = "kern.scatter_add"
"""Op whose kernel may compute what it reads."""


@dataclass(eq=False)
class Structured:
    """Extracted function with ``op``. ``shapes``: shapes in ``symbols``; None if types are static.

    Loops may compute what a ``kern.scatter_add`` adds; all other ops read the function's arguments.
    """

    function: ir.Operation
    op: ir.Operation
    symbols: list[Symbol]
    shapes: Sequence[tuple[AnySize, ...]] | None

    @cached_property
    def graph(self) -> Graph:
        """The body before ``op``; its results are what ``op`` reads."""
        return read_graph(self.function, self.op)

    @property
    def name(self) -> str:
        return ir.StringAttr(self.function.attributes["sym_name"]).value

    @cached_property
    def results(self) -> list[int]:
        """Numbers of the op's results that the function returns."""
        given = list(list(self.function.regions[0].blocks[0].operations)[-1].operation.operands)
        return [list(self.op.results).index(value) for value in given]

    @property
    def config(self) -> dict[str, int]:
        return config_of(self.function)

    @property
    def in_place(self) -> dict[int, int]:
        return in_place_of(self.function)


def read_structured(function: ir.Operation) -> Structured | None:
    """Return the structured op of ``function``'s body; None for a body of loops.

    Raises:
        KernelNotSupported: There are other ops, or arguments or results are not in order.
    """
    block = function.regions[0].blocks[0]
    every = [view.operation for view in block.operations]
    number = next((n for n, each in enumerate(every) if each.name.startswith("kern.")), None)
    if number is None:
        return None
    symbols, shapes = symbols_and_shapes(function)
    op, *rest = every[number:]
    if number and op.name == _TERMS and len(rest) == 1 and not symbols:
        return Structured(function, op, symbols, None)
    op, *rest = every
    arguments, made = list(block.arguments), list(op.results)
    tensors, last = arguments[: len(arguments) - len(symbols)], arguments[-1:]
    given = list(rest[0].operands) if len(rest) == 1 else []
    kept = [v for v in made if v in given] if op.name in _ANY_RESULTS else made
    read = list(op.operands)
    numbers = read[len(tensors) :]  # the position of rows
    if not given or read[: len(tensors)] != tensors or numbers not in ([], last) or given != kept:
        found = next(each.name for each in (op, *rest) if each.name.startswith("kern."))
        raise KernelNotSupported(what=f"a {found} that shares a kernel with other ops")
    return Structured(function, op, symbols, shapes)


def scatter_in_place(body: Structured) -> bool:
    """Return True if a ``kern.scatter_add`` overwrites its init.

    Raises KernelNotSupported for other memory.
    """
    init = [v.arg_number for v in list(body.op.operands)[2:] if isinstance(v, ir.BlockArgument)]
    if body.results[0] != 0 or body.in_place not in ({}, *({0: number} for number in init)):
        raise KernelNotSupported(
            what="a kern.scatter_add whose first result is not out, or lies not in init's memory"
        )
    return bool(body.in_place)
