"""What a kernel's function says beside its body: its symbols, the shapes of its tensors, what is written in
place, its configuration.
"""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.kern.config import read_config
from shardc.dialects.kern.kernel import HINTS, SHAPES, in_place, kernel_symbols
from shardc.dialects.kern.size import AnySize, Symbol, read_shape


def symbols_and_shapes(function: ir.Operation) -> tuple[list[Symbol], list[tuple[AnySize, ...]] | None]:
    """The numbers that a function takes, and what the shapes of its tensors, arguments and then results,
    are in them.
    """
    if HINTS not in function.attributes:
        return [], None
    symbols = kernel_symbols(function)
    return symbols, [read_shape(map_, symbols) for map_ in function.attributes[SHAPES]]


def in_place_of(function: ir.Operation) -> dict[int, int]:
    """Number of a result -> that of the argument whose memory it takes."""
    return in_place(function, "kern.in_place")


def config_of(function: ir.Operation) -> dict[str, int]:
    """The ``#kern.config`` of a function of :func:`shardc.backends.body.extract.extract`:
    each backend knows its own names.
    """
    return read_config(function.attributes["kern.config"]) if "kern.config" in function.attributes else {}
