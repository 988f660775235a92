"""Attributes of a kernel's function: symbols, shapes, what is written in place, and its configuration."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.kern.config import read_config
from shardc.dialects.kern.kernel import HINTS, SHAPES, in_place, kernel_symbols
from shardc.dialects.kern.size import AnySize, Symbol, read_shape


def symbols_and_shapes(function: ir.Operation) -> tuple[list[Symbol], list[tuple[AnySize, ...]] | None]:
    """The integers that a function takes, and the shapes in them of its arguments, then of its results."""
    if HINTS not in function.attributes:
        return [], None
    symbols = kernel_symbols(function)
    return symbols, [read_shape(map_, symbols) for map_ in function.attributes[SHAPES]]


def in_place_of(function: ir.Operation) -> dict[int, int]:
    """Number of a result -> that of the argument whose memory it takes."""
    return in_place(function, "kern.in_place")


def config_of(function: ir.Operation) -> dict[str, int]:
    """The ``#kern.config`` of an extracted kernel's function; each backend knows its own names."""
    return read_config(function.attributes["kern.config"]) if "kern.config" in function.attributes else {}
