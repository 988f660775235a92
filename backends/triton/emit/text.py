"""Pieces of Triton source: expressions with their type and the indices that they vary along."""

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
"""Element types of memory as Triton's signatures write them; truth values are bytes in a kernel's memory."""
VALUES = {element: f"tl.{scalar}" for element, scalar in zip(_ELEMENTS, _SCALARS, strict=True)}
"""Types of scalars inside a function."""

FLOATS = ("f16", "bf16", "f32", "f64")
_TAKEN = frozenset(
    ("tl", "triton", "torch", "libdevice", "float", "range", "min", "max", "sum", "launch", "grid")
)


@dataclass(frozen=True)
class Expr:
    """``text`` gives a value of MLIR's scalar ``type``, which varies along the indices ``vary`` (of a tile).

    ``literal``: the value, where it is a number of the program. ``atom``: the text needs no parentheses.
    """

    text: str
    type: str
    vary: frozenset[str] = frozenset()
    literal: float | int | bool | None = None
    atom: bool = True

    def __str__(self) -> str:
        return self.text if self.atom else f"({self.text})"


def literal(value: float | int | bool, type_: str) -> Expr:
    """A number as ``type_``: the f32 that is nearest, where that is the type."""
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
    """As few digits as give the same f32: 0.70710677 for 0.7071067690849304."""
    if type_ == "f32":
        for digits in range(1, 10):
            text = f"{value:.{digits}g}"
            if struct.unpack("f", struct.pack("f", float(text)))[0] == value:
                return repr(float(text))
    return repr(value)


def attribute(value: ir.Attribute) -> Expr:
    """The number of a constant's attribute."""
    is_number = isinstance(value, ir.IntegerAttr | ir.FloatAttr | ir.BoolAttr)
    return literal(value.value if is_number else bool(value), str(value.type))


def joined(vary: Iterable[Expr]) -> frozenset[str]:
    """Along what a value made from these varies."""
    return frozenset().union(*(e.vary for e in vary))


def size_text(size: AnySize, names: list[str] | None = None) -> str:
    """``n0 * 64 + 1``, in the names of the integers that a kernel takes."""
    if isinstance(size, int):
        return str(size)
    return evaluate(
        size, lambda s: names[s.number] if names else f"n{s.number}", str, "{} * {}".format, "{} + {}".format
    )


def factor_text(size: AnySize, names: list[str] | None = None) -> str:
    """The same as a factor: in parentheses unless it is a number or a name."""
    text = size_text(size, names)
    return text if text.isdigit() or text.isidentifier() else f"({text})"


def precision_lines(element: str, tf32: bool) -> list[str]:
    """The line that defines PRECISION, which products of f32 take; none for another ``element``."""
    line = f'PRECISION = tl.constexpr("{"tf32" if tf32 else "ieee"}")  # of products, as torch was set'
    return [line] * (element == "f32")


def precision_of(element: str) -> str:
    """What each ``tl.dot`` of factors of ``element`` is told besides its operands."""
    return ", input_precision=PRECISION" if element == "f32" else ""


class Names:
    """Identifiers of one module or function, each handed out once."""

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
