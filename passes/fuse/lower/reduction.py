"""Lowerings of sums, products, means, extrema with indices, norms, variances, and short scans.

Sums of floats are computed in at least f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.schema import parameters
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import AnySize, hint
from shardc.passes.fuse.grouping.legal import MIN_RUN
from shardc.passes.fuse.lower.scalars import COMBINE, Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value

MOST_STEPS = 32
"""Most steps of a scan that is computed anew for each step: 32 steps of 1,024 elements take 0.1 of a
library's time, 64 steps 1.8."""


def _reduced_dims(call: OpCall) -> list[int]:
    """Return the reduced dims: all of them if ``dim`` is missing, None or empty."""
    rank = len(call.tensors[0].shape)
    dim = call["dim"] if any(name == "dim" for name, _, _ in parameters(call.target)) else None
    if dim is None or dim == ():
        return list(range(rank))
    return sorted({d % rank for d in (dim if isinstance(dim, tuple) else (dim,))}) if rank else []


def converted(b: Builder, x: Value, dtype: torch.dtype) -> Value:
    """Return ``x`` converted to ``dtype``."""
    if x.type.dtype == dtype:
        return x
    return b.point(lambda s, v: s.cast(v, dtype), [x], TensorType(x.type.shape, dtype), dtype=dtype)


def finished(b: Builder, x: Value, type_: TensorType) -> Value:
    """Return the result of a reduction in the shape and dtype of the call's result."""
    made = converted(b, x, type_.dtype)
    return b.reshape(made, type_.shape) if x.type.shape != type_.shape else made


@lowers("aten.sum", "aten.sum.dim_IntList")
def total(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (type_,) = results(call)
    x = converted(b, values[0], wide(type_.dtype)) if type_.dtype != values[0].type.dtype else values[0]
    return [finished(b, summed(b, x, _reduced_dims(call), wide(type_.dtype)), type_)]


def summed(b: Builder, x: Value, dims: Sequence[int], dtype: torch.dtype | None = None) -> Value:
    """Return the sum over ``dims``, which are kept with size 1."""
    return (
        b.reduce_all("sum", x, dtype) if len(dims) == len(x.type.shape) else b.reduce("sum", x, dims, dtype)
    )


@lowers("aten.mean", "aten.mean.dim")
def mean(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (type_,) = results(call)
    return [finished(b, mean_over(b, values[0], _reduced_dims(call), wide(type_.dtype)), type_)]


def mean_over(b: Builder, x: Value, dims: Sequence[int], dtype: torch.dtype) -> Value:
    return divided(b, summed(b, x, dims, dtype), prod(x.type.shape[d] for d in dims))


def divided(b: Builder, x: Value, count: AnySize) -> Value:
    return b.point(lambda s, v: s.div(v, s.size(count, v.dtype)), [x], x.type, sizes=[count])


@lowers("aten.amax", "aten.amin", "aten.max", "aten.min")
def extremum(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the extrema of elements; NaN if any element is NaN."""
    if values[0].type.dtype == torch.bool:
        raise NotLowered("is an extremum of booleans")
    kind, x = "max" if "max" in call.target else "min", _wide_integers(b, values[0])
    return [finished(b, b.reduce(kind, x, _reduced_dims(call)), results(call)[0])]


@lowers("aten.aminmax")
def both_extrema(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the minimum and the maximum of elements; NaN if any element is NaN."""
    if values[0].type.dtype == torch.bool:
        raise NotLowered("is an extremum of booleans")
    x, dims = _wide_integers(b, values[0]), _reduced_dims(call)
    return [
        finished(b, b.reduce(kind, x, dims), t) for kind, t in zip(("min", "max"), results(call), strict=True)
    ]


def _wide_integers(b: Builder, x: Value) -> Value:
    """Return ``x`` as int32 if it has integers of fewer bits."""
    narrow = not x.type.dtype.is_floating_point and x.type.dtype.itemsize < 4
    return converted(b, x, torch.int32) if narrow else x


@lowers("aten.max.dim", "aten.min.dim", "aten.argmax", "aten.argmin")
def placed_extremum(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower an extremum and the first index that has it. If any element is NaN, that is the first NaN's."""
    (x,), dims, types = values, _reduced_dims(call), results(call)
    size = prod(x.type.shape[d] for d in dims)
    if (
        x.type.dtype == torch.bool
        or not isinstance(size, int)
        or size > torch.iinfo(torch.int32).max
        or not x.type.shape
    ):
        raise NotLowered("is an extremum of booleans, of a 0-d tensor, or over a symbolic or too large size")
    x = _wide_integers(b, x)
    found = b.reduce("max" if "max" in call.target else "min", x, dims)
    type_ = TensorType(x.type.shape, torch.int32)

    def place(s: Scalars, v: Scalar, best: Scalar, index: Scalar) -> Scalar:
        here = s.compare("eq", s.cast(v, best.dtype), best)
        if v.dtype.is_floating_point:
            here = s.bit("or", here, s.compare("ne", v, v))
        return s.select(here, s.cast(index, torch.int32), size - 1)

    places = b.point(place, [x, found], type_, dtype=torch.int32, indices=[dims])
    first = finished(b, b.reduce("min", places, dims), types[-1])
    return [first] if len(types) == 1 else [finished(b, found, types[0]), first]


@lowers(*(f"aten.{name}{kind}" for name in ("any", "all") for kind in ("", ".dim", ".dims")))
def truth(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (x,), (type_,) = values, results(call)
    ones = TensorType(x.type.shape, torch.int32)

    def one(s: Scalars, v: Scalar) -> Scalar:
        return s.cast(s.cast(v, torch.bool), torch.int32)

    x = b.point(one, [x], ones, dtype=torch.int32)
    return [finished(b, b.reduce("max" if "any" in call.target else "min", x, _reduced_dims(call)), type_)]


@lowers("aten.prod", "aten.prod.dim_int")
def product(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (type_,) = results(call)
    dtype = wide(type_.dtype)
    x = converted(b, values[0], dtype)
    return [finished(b, b.reduce("product", x, _reduced_dims(call), dtype), type_)]


@lowers("aten.cumsum", "aten.cumprod")
def short_scan(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower a scan over few steps, of many elements each: an element combines the steps up to its own.

    All steps are read, and those after it count as 0 or 1. A library adds with a stride instead: chunks of a
    linear attention, 16 steps of 1,024 elements, took eight times as long.
    """
    (x,), (type_,) = values, results(call)
    shape = type_.shape
    dim, steps = call["dim"], shape[call["dim"]] if shape else 0
    inner = prod(map(hint, shape[dim % len(shape) + 1 :])) if shape else 1
    if not isinstance(steps, int) or steps > MOST_STEPS or inner < MIN_RUN:
        raise NotLowered(f"is a scan of more than {MOST_STEPS} steps, or of few elements each")
    dim %= len(shape)
    kind, neutral = ("sum", 0) if "cumsum" in call.target else ("product", 1)

    def compute(s: Scalars, read: Callable[..., Scalar], place: Scalar) -> Scalar:
        total = s.constant(neutral, s.compute)
        for step in range(steps):
            term = s.cast(read(s.constant(step, torch.int64)), s.compute)
            term = s.select(s.compare("ge", place, step), term, neutral) if step else term
            total = COMBINE[kind](s, term, total)
        return total

    kept = [None if d == dim else d for d in range(len(shape))]
    dtype = wide(type_.dtype)
    return [b.point(compute, [], type_, dtype=dtype, indices=[[dim]], tables=[(x, kept)], reads=steps)]


@lowers("aten.cummax", "aten.cummin")
def short_extrema(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower a scan over few steps to the extrema so far and their last indices. A NaN is the extremum."""
    (x,), types = values, results(call)
    shape, dim = x.type.shape, call["dim"]
    steps = shape[dim] if shape else 0
    inner = prod(map(hint, shape[dim % len(shape) + 1 :])) if shape else 1
    if (
        not isinstance(steps, int)
        or steps > MOST_STEPS
        or inner < MIN_RUN
        or not types[0].dtype.is_floating_point
    ):
        raise NotLowered(f"is a scan of more than {MOST_STEPS} steps, of few elements each, or of integers")
    dim %= len(shape)
    kind, better, neutral = ("max", "ge", -inf) if "cummax" in call.target else ("min", "le", inf)
    dtype = wide(types[0].dtype)

    def terms(s: Scalars, read: Callable[..., Scalar], place: Scalar) -> list[tuple[Scalar, Scalar]]:
        found = [s.cast(read(s.constant(step, torch.int64)), dtype) for step in range(steps)]
        return [(v, s.compare("ge", place, step)) for step, v in enumerate(found)]

    def extremum(s: Scalars, read: Callable[..., Scalar], place: Scalar) -> Scalar:
        best = s.constant(neutral, dtype)
        for value, reached in terms(s, read, place):
            best = COMBINE[kind](s, s.select(reached, value, neutral), best)
        return best

    def index(s: Scalars, read: Callable[..., Scalar], place: Scalar) -> Scalar:
        s.compute = dtype
        best, found = s.constant(neutral, dtype), s.constant(0, torch.int64)
        for step, (value, reached) in enumerate(terms(s, read, place)):
            is_better = s.bit("or", s.compare(better, value, best), s.compare("ne", value, value))
            taken = s.bit("and", reached, is_better)
            best, found = s.select(taken, value, best), s.select(taken, step, found)
        return found

    kept = [None if d == dim else d for d in range(len(shape))]
    given = {"indices": [[dim]], "tables": [(x, kept)], "reads": steps}
    return [
        b.point(extremum, [], types[0], dtype=dtype, **given),
        b.point(index, [], types[1], **given),
    ]


@lowers("aten.logsumexp")
def log_of_sum(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower ``log(sum(exp(x)))``. The largest element is subtracted first, unless it is infinite."""
    (x,), (type_,) = values, results(call)
    if not x.type.dtype.is_floating_point:
        raise NotLowered("works on integers")
    dims, dtype = _reduced_dims(call), wide(type_.dtype)
    most = b.reduce("max", x, dims)

    def finite(s: Scalars, m: Scalar) -> Scalar:
        return s.select(s.compare("eq", s.math("absf", m), inf), 0, m)

    def power(s: Scalars, v: Scalar, m: Scalar) -> Scalar:
        return s.math("exp", s.sub(s.cast(v, dtype), finite(s, m)))

    powers = b.point(power, [x, most], TensorType(x.type.shape, dtype), dtype=dtype, heavy=True)
    total = b.reduce("sum", powers, dims, dtype)

    def logarithm(s: Scalars, t: Scalar, m: Scalar) -> Scalar:
        return s.add(s.math("log", t), finite(s, m))

    return [finished(b, b.point(logarithm, [total, most], total.type, heavy=True), type_)]


@lowers("aten.linalg_vector_norm", "aten.norm.Scalar", "aten.norm.ScalarOpt_dim")
def norm(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower vector norms of order 1, 2 and infinity (minus infinity, too)."""
    (x,), (type_,) = values, results(call)
    power = call["ord" if "linalg" in call.target else "p"]
    power = 2 if power is None else power
    if power not in (1, 2, inf, -inf) or not type_.dtype.is_floating_point or x.type.dtype != type_.dtype:
        raise NotLowered("is a norm of an order that is not 1, 2 or infinity, or in another dtype")
    dims, dtype = _reduced_dims(call), wide(type_.dtype)

    def term(s: Scalars, v: Scalar) -> Scalar:
        v = s.cast(v, dtype)
        return s.mul(v, v) if power == 2 else s.math("absf", v)

    terms = b.point(term, [x], TensorType(x.type.shape, dtype), dtype=dtype)
    if power in (1, 2):
        made = summed(b, terms, dims, dtype)
    else:
        made = b.reduce("max" if power > 0 else "min", terms, dims, dtype)
    if power == 2:
        made = b.point(lambda s, v: s.math("sqrt", v), [made], made.type, dtype=dtype)
    return [finished(b, made, type_)]


@lowers("aten.var.correction", "aten.var_mean.correction", "aten.var.dim")
@lowers("aten.std.correction", "aten.std_mean.correction")
def variance(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower variances by two sums: of ``x``, and of the squared distances to its mean.

    A standard deviation is the root of a variance.
    """
    dims, types = _reduced_dims(call), results(call)
    given = int(call["unbiased"]) if call.target == "aten.var.dim" else call["correction"]
    correction = 1 if given is None else given
    freedom = prod(values[0].type.shape[d] for d in dims) - correction
    if isinstance(freedom, int) and freedom <= 0:
        raise NotLowered("is the variance of too few elements")
    mean, square = moments(b, values[0], dims, wide(types[0].dtype))

    def compute(s: Scalars, v: Scalar) -> Scalar:
        v = s.div(v, s.maximum(s.size(freedom, v.dtype), 0.0))
        return s.math("sqrt", v) if "std" in call.target else v

    var = b.point(compute, [square], square.type, sizes=[freedom])
    return [finished(b, value, type_) for value, type_ in zip((var, mean), types, strict=False)]


def moments(b: Builder, x: Value, dims: Sequence[int], dtype: torch.dtype) -> tuple[Value, Value]:
    """Return the mean over ``dims``, which are kept with size 1, and the sum of squared distances to it."""
    mean = mean_over(b, x, dims, dtype)

    def squared(s, v, m):
        gap = s.sub(s.cast(v, dtype), m)
        return s.mul(gap, gap)

    distance = b.point(squared, [x, mean], TensorType(x.type.shape, dtype), dtype=dtype)
    return mean, b.reduce("sum", distance, dims, dtype)
