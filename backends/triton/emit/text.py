"""Pieces of Triton source: expressions with their type, and the indices on which they depend."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.kern.size import AnySize, evaluate

_ELEMENTS: tuple[str, ...] = ("f16", "bf16", "f32", "f64", "i1", "i8", "i16", "i32", "i64")
_SCALARS = ("float16", "bfloat16", "float32", "float64", "int1", "int8", "int16", "int32", "int64")
TYPES: dict[str, str] = dict(
    zip(_ELEMENTS, ("fp16", "bf16", "fp32", "fp64", "i1", "i8", "i16", "i32", "i64"), strict=True)
)
"""MLIR element type -> type in Triton's signatures. Booleans are bytes in memory."""
VALUES = {element: f"tl.{scalar}" for element, scalar in zip(_ELEMENTS, _SCALARS, strict=True)}
"""MLIR type -> Triton's type of values inside a function."""

FLOATS = ("f16", "bf16", "f32", "f64")
_TAKEN = frozenset(
    ("tl", "triton", "torch", "libdevice", "float", "range", "min", "max", "sum", "launch", "grid")
)


@dataclass(frozen=True)
class Expr:
    """Expression of MLIR's scalar ``type``, which depends on the indices ``vary`` of a tile.

    ``literal``: the value, if it is a constant. ``atom``: True if the text needs no parentheses.
    """

    text: str
    type: str
    vary: frozenset[str] = frozenset()
    literal: float | int | bool | None = None
    atom: bool = True

    def __str__(self) -> str:
        return self.text if self.atom else f"({self.text})"


def literal(value: float | int | bool, type_: str) -> Expr:
    """Return a number as ``type_``: for f32, the nearest f32."""
    if type_ in FLOATS:
        value = float(value)
        if type_ == "f32" and math.isfinite(value) and abs(value) < 3.5e38:
            value = struct.unpack("f", struct.pack("f", value))[0]
        text = f'float("{value}")' if not math.isfinite(value) else _shortest(value, type_)
        if type_ == "f64":
            text = f"tl.full([], {text}, tl.float64)"
        return Expr(text, type_, literal=value)
    if type_ == "i1":
        return Expr(str(bool(value)), type_, literal=bool(value))
    return Expr(str(int(value)), type_, literal=int(value))


def _shortest(value: float, type_: str) -> str:
    """Return the fewest digits that give the same f32: 0.70710677 for 0.7071067690849304."""
    if type_ == "f32":
        for digits in range(1, 10):
            text = f"{value:.{digits}g}"
            if struct.unpack("f", struct.pack("f", float(text)))[0] == value:
                return repr(float(text))
    return repr(value)


def attribute(value: ir.Attribute) -> Expr:
    """Return the number of a constant's attribute."""
    is_number = isinstance(value, ir.IntegerAttr | ir.FloatAttr | ir.BoolAttr)
    return literal(value.value if is_number else bool(value), str(value.type))


def joined(vary: Iterable[Expr]) -> frozenset[str]:
    """Return the indices on which a value computed from these depends."""
    return frozenset().union(*(e.vary for e in vary))


def size_text(size: AnySize, names: list[str] | None = None) -> str:
    """Return a size as text, such as ``n0 * 64 + 1``, in the names of the kernel's integers."""
    if isinstance(size, int):
        return str(size)
    return evaluate(
        size, lambda s: names[s.number] if names else f"n{s.number}", str, "{} * {}".format, "{} + {}".format
    )


def factor_text(size: AnySize, names: list[str] | None = None) -> str:
    """Return a size as the text of a factor: in parentheses unless it is a number or a name."""
    text = size_text(size, names)
    return text if text.isdigit() or text.isidentifier() else f"({text})"


def precision_lines(element: str, tf32: bool) -> list[str]:
    """Return the line that defines PRECISION for f32 matmuls; none for another ``element``."""
    line = f'PRECISION = tl.constexpr("{"tf32" if tf32 else "ieee"}")  # of products, as torch was set'
    return [line] * (element == "f32")


def precision_of(element: str) -> str:
    """Return the precision argument of each ``tl.dot`` on factors of ``element``."""
    return ", input_precision=PRECISION" if element == "f32" else ""


class Names:
    """Generator of unique identifiers in one module or function."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(_TAKEN) | set(taken)

    def new(self, wanted: str) -> str:
        base = re.sub(r"\W+", "_", wanted).strip("_") or "x"
        base = f"_{base}" if base[0].isdigit() else base
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name
