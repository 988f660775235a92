"""Lowerings of copies, dtype conversions, ``full``, ``arange``, and triangular parts."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.dialects.aten.call import OpCall
from shardc.dialects.kern.size import Size
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, results, untyped
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value

untyped("clone contiguous lift_fresh_copy _to_copy", lambda s, x, *_, **__: x)
untyped("copy", lambda s, x, source, *_: source)

_FORMS = ("{}", "{}_like", "new_{}")


@lowers(
    *(f"aten.{form.format(name)}" for name in ("zeros", "ones", "full") for form in _FORMS),
    "aten.scalar_tensor",
    "aten.fill.Scalar",
)
def filled(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower tensors that are filled with 0, 1, or a number among the call's arguments."""
    (type_,) = results(call)
    number = int("ones" in call.target)
    if "full" in call.target:
        number = call["fill_value"]
    elif call.target in ("aten.scalar_tensor", "aten.fill.Scalar"):
        number = call["s" if "scalar" in call.target else "value"]
    if isinstance(number, complex):
        raise NotLowered("is filled with a complex number")
    sizes = [number] if isinstance(number, Size) else []
    return [b.point(lambda s: s.size(number, type_.dtype), [], type_, sizes=sizes)]


@lowers("aten.arange", "aten.arange.start", "aten.arange.start_step")
def arange(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower ranges of integers only: ATen's loops round ranges of floats in different ways."""
    (type_,) = results(call)
    start = 0 if call.target == "aten.arange" else call["start"]
    step = call["step"] if call.target == "aten.arange.start_step" else 1
    if type_.dtype.is_floating_point or not isinstance(start, int) or not isinstance(step, int):
        raise NotLowered("is a range of floats")

    def compute(s: Scalars, index: Scalar) -> Scalar:
        return s.add(s.mul(s.cast(index, type_.dtype), step), start)

    return [b.point(compute, [], type_, indices=[[0]])]


@lowers("aten.tril", "aten.triu")
def triangle(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower triangular parts: zeros above (``tril``) or below (``triu``) a diagonal."""
    (type_,), diagonal = results(call), call["diagonal"]
    if not isinstance(diagonal, int):
        raise NotLowered("has a symbolic diagonal")
    rank, predicate = len(type_.shape), "le" if call.target == "aten.tril" else "ge"

    def compute(s: Scalars, x: Scalar, row: Scalar, column: Scalar) -> Scalar:
        return s.select(s.compare(predicate, column, s.add(row, diagonal)), s.cast(x, s.compute), 0)

    return [b.point(compute, values, type_, indices=[[rank - 2], [rank - 1]])]
