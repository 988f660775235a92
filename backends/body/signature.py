"""Attributes of a kernel's function: symbols, shapes, in-place results, and its configuration."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.kern.config import read_config
from shardc.dialects.kern.kernel import HINTS, SHAPES, in_place, kernel_symbols
from shardc.dialects.kern.size import AnySize, Symbol, read_shape


def symbols_and_shapes(function: ir.Operation) -> tuple[list[Symbol], list[tuple[AnySize, ...]] | None]:
    """Return a function's symbols, and the shapes of its arguments and then results in terms of them."""
    if HINTS not in function.attributes:
        return [], None
    symbols = kernel_symbols(function)
    return symbols, [read_shape(map_, symbols) for map_ in function.attributes[SHAPES]]


def in_place_of(function: ir.Operation) -> dict[int, int]:
    """Return number of a result -> number of the argument whose memory it reuses."""
    return in_place(function, "kern.in_place")


def config_of(function: ir.Operation) -> dict[str, int]:
    """Return the ``#kern.config`` of an extracted kernel's function. Names depend on the backend."""
    return read_config(function.attributes["kern.config"]) if "kern.config" in function.attributes else {}
