"""What a kernel's function says beside its body: its symbols, the shapes of its tensors, what is written in place, its
configuration.
"""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.kern.kernel import HINTS, SHAPES
from shardc.dialects.kern.size import AnySize, Symbol, read_shape


def symbols_and_shapes(function: ir.Operation) -> tuple[list[Symbol], list[tuple[AnySize, ...]] | None]:
    """The numbers that a function takes, and what the shapes of its tensors, arguments and then results,
    are in them.
    """
    if HINTS not in function.attributes:
        return [], None
    symbols = [Symbol(n, h) for n, h in enumerate(function.attributes[HINTS])]
    return symbols, [read_shape(map_, symbols) for map_ in function.attributes[SHAPES]]


def in_place_of(function: ir.Operation) -> dict[int, int]:
    """Number of a result -> that of the argument whose memory it takes."""
    if "kern.in_place" not in function.attributes:
        return {}
    pairs = list(ir.DenseI64ArrayAttr(function.attributes["kern.in_place"]))
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def config_of(function: ir.Operation) -> dict[str, int]:
    """The ``#kern.config`` of a function of :func:`shardc.backends.body.extract.extract`:
    each backend knows its own names.
    """
    if "kern.config" not in function.attributes:
        return {}
    config = function.attributes["kern.config"]
    (values,) = getattr(config, "params", [config])  # #kern.config<{...}>, or the dictionary itself
    return {entry.name: ir.IntegerAttr(entry.attr).value for entry in ir.DictAttr(values)}
