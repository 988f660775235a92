"""Largest and smallest values, NaN where there is one, by two instructions a vector instead of four.

x86's instruction for the larger of two returns the second where one is NaN (aarch64's returns NaN). So the
terms' squares are added up too: their sum is NaN where a term is, and nowhere else.
"""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir.dialects import arith

from shardc.backends.body.roots import Root
from shardc.backends.cpu.emit.element import Elements, Place
from shardc.backends.cpu.emit.result import Result
from shardc.backends.cpu.host import architecture

_PLAIN = {"arith.maximumf": "arith.maxnumf", "arith.minimumf": "arith.minnumf"}
"""The op that need not know of NaN."""
_PLACED = ("tensor.extract", "linalg.index")
_UNORDERED = 14
"""The predicate of ``arith.cmpf`` that is true for NaN alone."""


def is_extreme(root: Root) -> bool:
    """Whether ``root`` is the largest or smallest of f32 or f64 terms, and nothing else, on x86. Not of what
    is read at computed indices, or made of the loop's own position.
    """
    found = root.combiners or []
    if architecture() != "x86_64" or len(found) != 1 or found[0].op not in _PLAIN:
        return False
    placed = any(op.operation.name in _PLACED for op in Result(root).generic.block)
    return not placed and isinstance(found[0].identity.type, ir.F32Type | ir.F64Type)


def step(
    result: Result, so_far: ir.Value, squares: ir.Value, elements: Elements, place: Place
) -> tuple[ir.Value, ir.Value]:
    """The extreme and the sum of squares with one more term. The extreme is any number if a term was NaN."""
    join = result.generic.join(0)
    assert join is not None
    term = elements.part(result.generic, join.term, result.root.dims, place)
    flags = {"fastmath": _flags("nnan,nsz")}
    larger = ir.Operation.create(_PLAIN[join.op.name], [term.type], [term, so_far], flags)
    square = arith.mulf(term, term, fastmath=_flags("contract"))
    return larger.result, arith.addf(squares, square, fastmath=_flags("reassoc,contract"))


def _flags(names: str) -> ir.Attribute:
    return ir.Attribute.parse(f"#arith.fastmath<{names}>")


def checked(extreme: ir.Value, squares: ir.Value) -> ir.Value:
    """NaN if a term was."""
    return arith.select(arith.cmpf(_UNORDERED, squares, squares), squares, extreme)
