"""Execution of ``arith`` and ``math`` ops in a kernel's regions, as torch ops on whole tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.eager.aten import WIDE

Evaluate = Callable[..., Tensor]

_FLOATS = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
_INTS = {
    "i1": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "index": torch.int64,
}


def attribute_value(op: ir.Operation, widen: bool) -> Tensor:
    """Return the value of an ``arith.constant``: a number, or a splat or dense tensor."""
    attribute, type_ = op.attributes["value"], op.results[0].type
    if isinstance(attribute, ir.DenseElementsAttr):
        tensor = ir.RankedTensorType(type_)
        shape, dtype = tuple(tensor.shape), _dtype(tensor.element_type, widen)
        if attribute.is_splat:
            return torch.full(shape, _number(attribute.get_splat_value()), dtype=dtype)
        assert isinstance(attribute, ir.DenseIntElementsAttr | ir.DenseFPElementsAttr)
        return torch.tensor([attribute[n] for n in range(len(attribute))], dtype=dtype).reshape(shape)
    return torch.tensor(_number(attribute), dtype=_dtype(type_, widen))


def _number(attribute: ir.Attribute) -> float:
    assert isinstance(attribute, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr)
    return attribute.value


def _dtype(type_: ir.Type, widen: bool) -> torch.dtype:
    text = str(type_)
    found = _FLOATS.get(text) or _INTS[text]
    return WIDE.get(found, found) if widen else found


def _cast(op: ir.Operation, widen: bool, x: Tensor) -> Tensor:
    return x.to(_dtype(op.results[0].type, widen))


def _truncate_int(op: ir.Operation, widen: bool, x: Tensor) -> Tensor:
    dtype = _dtype(op.results[0].type, widen)
    return (x & 1).bool() if dtype == torch.bool else x.to(dtype)


def _plain(function: Callable[..., Tensor]) -> Evaluate:
    return lambda op, widen, *operands: function(*operands)


# Predicates by number: arith's CmpFPredicate and CmpIPredicate (ArithBase.td).
_ORDERS = ("eq", "gt", "ge", "lt", "le", "ne")
_FLOAT_PREDICATES = ("false", *(f"o{n}" for n in _ORDERS), "ord", *(f"u{n}" for n in _ORDERS), "uno", "true")
_INT_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge")


def _compare_floats(op: ir.Operation, widen: bool, x: Tensor, y: Tensor) -> Tensor:
    name = _FLOAT_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
    unordered = x.isnan() | y.isnan()
    if name in ("ord", "uno"):
        return unordered if name == "uno" else ~unordered
    found = getattr(operator, name[1:])(x, y)
    return (found | unordered) if name[0] == "u" else (found & ~unordered)


def _compare_ints(op: ir.Operation, widen: bool, x: Tensor, y: Tensor) -> Tensor:
    name = _INT_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
    return getattr(operator, name[-2:])(x, y)


def _shift_right(x: Tensor, y: Tensor) -> Tensor:
    """Shift right with zeros (logical shift) in i64, by at least 1 bit."""
    return (x >> y) & ((1 << (64 - y)) - 1)


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "arith.addf": torch.add,
    "arith.addi": lambda x, y: x ^ y if x.dtype == torch.bool else x + y,
    "arith.andi": torch.bitwise_and,
    "arith.divf": torch.true_divide,
    "arith.divsi": partial(torch.div, rounding_mode="trunc"),
    "arith.floordivsi": torch.floor_divide,
    "arith.maximumf": torch.maximum,
    "arith.maxsi": torch.maximum,
    "arith.minimumf": torch.minimum,
    "arith.minsi": torch.minimum,
    "arith.mulf": torch.mul,
    "arith.muli": torch.mul,
    "arith.negf": torch.neg,
    "arith.ori": torch.bitwise_or,
    "arith.remf": torch.fmod,
    "arith.remsi": torch.fmod,
    "arith.select": torch.where,
    "arith.shli": torch.bitwise_left_shift,
    "arith.shrsi": torch.bitwise_right_shift,
    "arith.shrui": _shift_right,
    "arith.subf": torch.sub,
    "arith.subi": torch.sub,
    "arith.xori": torch.bitwise_xor,
    "math.absf": torch.abs,
    "math.absi": torch.abs,
    "math.powf": torch.pow,
    "math.round": lambda x: torch.where(x < 0, -torch.floor(-x + 0.5), torch.floor(x + 0.5)),
    "math.roundeven": torch.round,
}
_POWERS = ["exp", "exp2", "expm1", "log", "log1p", "log2", "rsqrt", "sqrt"]
_INVERSES = ["acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh"]
_OTHERS = ["ceil", "copysign", "cos", "cosh", "erf", "floor", "log10", "sin", "sinh", "tan", "tanh", "trunc"]
_SAME_NAME = [*_POWERS, *_INVERSES, *_OTHERS]
"""Ops of ``math`` with the same name in torch."""


def _extend_unsigned(op: ir.Operation, widen: bool, x: Tensor) -> Tensor:
    made = x.to(_dtype(op.results[0].type, widen))
    return made if x.dtype == torch.bool else made & ((1 << 8 * x.dtype.itemsize) - 1)


_CASTS = ["extf", "extsi", "fptosi", "index_cast", "sitofp", "truncf", "uitofp"]

EVALUATE: dict[str, Evaluate] = {
    "arith.cmpf": _compare_floats,
    "arith.cmpi": _compare_ints,
    "arith.extui": _extend_unsigned,
    "arith.trunci": _truncate_int,
    **{f"arith.{name}": _cast for name in _CASTS},
    **{f"math.{name}": _plain(getattr(torch, name)) for name in _SAME_NAME},
    **{name: _plain(function) for name, function in _FUNCTIONS.items()},
}
"""Op name -> ``(op, widen, *operands)``."""


def _product(x: Tensor, dims: list[int]) -> Tensor:
    for d in dims:
        x = x.prod(d, keepdim=True)
    return x


def _sum(x: Tensor, dims: list[int]) -> Tensor:
    return x.sum(dims, keepdim=True, dtype=x.dtype)


_KEPT: dict[str, Callable[..., Tensor]] = {
    "arith.andi": torch.all,
    "arith.maximumf": torch.amax,
    "arith.maxsi": torch.amax,
    "arith.minimumf": torch.amin,
    "arith.minsi": torch.amin,
    "arith.ori": torch.any,
}
REDUCE: dict[str, Callable[[Tensor, list[int]], Tensor]] = {
    "arith.addf": _sum,
    "arith.addi": _sum,
    "arith.mulf": _product,
    "arith.muli": _product,
    **{name: partial(function, keepdim=True) for name, function in _KEPT.items()},
}
"""Op that combines two terms -> reduction over dims, which are kept with size 1."""
