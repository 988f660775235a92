"""Maximum and minimum that propagate NaN, with two instructions per vector instead of four.

x86's maximum returns the second operand if either is NaN (aarch64's returns NaN). So the terms' squares are
summed, too: that sum is NaN exactly if a term is.
"""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir.dialects import arith

from shardc.backends.body.roots import Root
from shardc.backends.cpu.emit.element import Elements, Place
from shardc.backends.cpu.emit.result import Result
from shardc.backends.cpu.host import architecture

_PLAIN = {"arith.maximumf": "arith.maxnumf", "arith.minimumf": "arith.minnumf"}
"""Op that propagates NaN -> the op that does not."""
_UNORDERED = 14
"""Predicate of ``arith.cmpf`` that is true only for NaN."""


def is_extreme(root: Root) -> bool:
    """Return True if ``root`` has only maxima and minima of f32 or f64 terms, on x86."""
    found = root.combiners or []
    floats = all(isinstance(each.identity.type, ir.F32Type | ir.F64Type) for each in found)
    return architecture() == "x86_64" and bool(found) and floats and all(each.op in _PLAIN for each in found)


def step(
    result: Result, so_far: ir.Value, squares: ir.Value, elements: Elements, place: Place
) -> tuple[ir.Value, ir.Value]:
    """Add a term to the extreme and the sum of squares. After a NaN term the extreme is arbitrary."""
    join = result.generic.join(result.n)
    assert join is not None
    term = elements.part(result.generic, join.term, result.root.dims, place)
    flags = {"fastmath": _flags("nnan,nsz")}
    larger = ir.Operation.create(_PLAIN[join.op.name], [term.type], [term, so_far], flags)
    square = arith.mulf(term, term, fastmath=_flags("contract"))
    return larger.result, arith.addf(squares, square, fastmath=_flags("reassoc,contract"))


def _flags(names: str) -> ir.Attribute:
    return ir.Attribute.parse(f"#arith.fastmath<{names}>")


def checked(extreme: ir.Value, squares: ir.Value) -> ir.Value:
    """Return the extreme, or NaN if a term was NaN."""
    return arith.select(arith.cmpf(_UNORDERED, squares, squares), squares, extreme)
