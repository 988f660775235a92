"""The ``arith`` and ``math`` ops of a kernel's regions, as torch ops on whole tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch_mlir import ir

from shardc.backends.eager.aten import WIDE

Tensor = torch.Tensor
Evaluate = Callable[..., Tensor]

_FLOATS = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
_INTS = {"i1": torch.bool, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64, "index": torch.int64}


def attribute_value(op: ir.Operation, widen: bool) -> Tensor:
    """The value of an ``arith.constant``: a number, or a splat or dense tensor of them."""
    attribute, type_ = op.attributes["value"], op.results[0].type
    if isinstance(attribute, ir.DenseElementsAttr):
        tensor = ir.RankedTensorType(type_)
        numbers = [attribute.get_splat_value().value] if attribute.is_splat else list(attribute)
        found = torch.tensor(numbers, dtype=_dtype(tensor.element_type, widen))
        return (
            found.expand(tuple(tensor.shape)) if attribute.is_splat else found.reshape(tuple(tensor.shape))
        ).clone()
    return torch.tensor(attribute.value, dtype=_dtype(type_, widen))


def _dtype(type_: ir.Type, widen: bool) -> torch.dtype:
    text = str(type_)
    found = _FLOATS.get(text) or _INTS[text]
    return WIDE.get(found, found) if widen else found


def _cast(op: ir.Operation, widen: bool, x: Tensor) -> Tensor:
    return x.to(_dtype(op.results[0].type, widen))


def _truncate_int(op: ir.Operation, widen: bool, x: Tensor) -> Tensor:
    dtype = _dtype(op.results[0].type, widen)
    return (x & 1).bool() if dtype == torch.bool else x.to(dtype)


def _float_to_int(op: ir.Operation, widen: bool, x: Tensor) -> Tensor:
    return x.trunc().to(_dtype(op.results[0].type, widen))


def _plain(function: Callable[..., Tensor]) -> Evaluate:
    return lambda op, widen, *operands: function(*operands)


_COMPARE = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
# Predicates by number: arith's CmpFPredicate and CmpIPredicate (ArithBase.td).
_FLOAT_PREDICATES = (
    "false",
    "oeq",
    "ogt",
    "oge",
    "olt",
    "ole",
    "one",
    "ord",
    "ueq",
    "ugt",
    "uge",
    "ult",
    "ule",
    "une",
    "uno",
    "true",
)
_INT_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge")


def _compare_floats(op: ir.Operation, widen: bool, x: Tensor, y: Tensor) -> Tensor:
    name = _FLOAT_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
    unordered = x.isnan() | y.isnan()
    if name in ("ord", "uno"):
        return unordered if name == "uno" else ~unordered
    found = _COMPARE[name[1:]](x, y)
    return (found | unordered) if name[0] == "u" else (found & ~unordered)


def _compare_ints(op: ir.Operation, widen: bool, x: Tensor, y: Tensor) -> Tensor:
    name = _INT_PREDICATES[ir.IntegerAttr(op.attributes["predicate"]).value]
    return _COMPARE[name.removeprefix("s") if len(name) == 3 else name](x, y)


def _trunc_div(x: Tensor, y: Tensor) -> Tensor:
    return torch.div(x, y, rounding_mode="trunc")


def _shift_right(x: Tensor, y: Tensor) -> Tensor:
    """With zeros for the bits that come in; of i64, by 1 bit at least."""
    return (x >> y) & ((1 << (64 - y)) - 1)


EVALUATE: dict[str, Evaluate] = {
    "arith.addf": _plain(torch.add),
    "arith.addi": _plain(lambda x, y: x ^ y if x.dtype == torch.bool else x + y),
    "arith.andi": _plain(torch.bitwise_and),
    "arith.cmpf": _compare_floats,
    "arith.cmpi": _compare_ints,
    "arith.divf": _plain(torch.true_divide),
    "arith.divsi": _plain(_trunc_div),
    "arith.floordivsi": _plain(torch.floor_divide),
    "arith.extf": _cast,
    "arith.extsi": _cast,
    "arith.extui": _cast,
    "arith.fptosi": _float_to_int,
    "arith.index_cast": _cast,
    "arith.maximumf": _plain(torch.maximum),
    "arith.maxsi": _plain(torch.maximum),
    "arith.minimumf": _plain(torch.minimum),
    "arith.minsi": _plain(torch.minimum),
    "arith.mulf": _plain(torch.mul),
    "arith.muli": _plain(torch.mul),
    "arith.negf": _plain(torch.neg),
    "arith.ori": _plain(torch.bitwise_or),
    "arith.remf": _plain(torch.fmod),
    "arith.remsi": _plain(torch.fmod),
    "arith.select": _plain(torch.where),
    "arith.shli": _plain(torch.bitwise_left_shift),
    "arith.shrui": _plain(_shift_right),
    "arith.sitofp": _cast,
    "arith.subf": _plain(torch.sub),
    "arith.subi": _plain(torch.sub),
    "arith.truncf": _cast,
    "arith.trunci": _truncate_int,
    "arith.uitofp": _cast,
    "arith.xori": _plain(torch.bitwise_xor),
    "math.absf": _plain(torch.abs),
    "math.absi": _plain(torch.abs),
    "math.ceil": _plain(torch.ceil),
    "math.copysign": _plain(torch.copysign),
    "math.cos": _plain(torch.cos),
    "math.erf": _plain(torch.erf),
    "math.exp": _plain(torch.exp),
    "math.exp2": _plain(torch.exp2),
    "math.expm1": _plain(torch.expm1),
    "math.floor": _plain(torch.floor),
    "math.log": _plain(torch.log),
    "math.log1p": _plain(torch.log1p),
    "math.log2": _plain(torch.log2),
    "math.powf": _plain(torch.pow),
    "math.round": _plain(lambda x: torch.where(x < 0, -torch.floor(-x + 0.5), torch.floor(x + 0.5))),
    "math.roundeven": _plain(torch.round),
    "math.rsqrt": _plain(torch.rsqrt),
    "math.sin": _plain(torch.sin),
    "math.sqrt": _plain(torch.sqrt),
    "math.tan": _plain(torch.tan),
    "math.tanh": _plain(torch.tanh),
    "math.trunc": _plain(torch.trunc),
}
"""Op name -> ``(op, widen, *operands)``."""


def _all(x: Tensor, dims: list[int]) -> Tensor:
    for d in dims:
        x = x.all(d, keepdim=True)
    return x


def _any(x: Tensor, dims: list[int]) -> Tensor:
    for d in dims:
        x = x.any(d, keepdim=True)
    return x


def _product(x: Tensor, dims: list[int]) -> Tensor:
    for d in dims:
        x = x.prod(d, keepdim=True)
    return x


def _sum(x: Tensor, dims: list[int]) -> Tensor:
    return x.sum(dims, keepdim=True, dtype=x.dtype)


def _largest(x: Tensor, dims: list[int]) -> Tensor:
    return x.amax(dims, keepdim=True)


def _smallest(x: Tensor, dims: list[int]) -> Tensor:
    return x.amin(dims, keepdim=True)


REDUCE: dict[str, Callable[[Tensor, list[int]], Tensor]] = {
    "arith.addf": _sum,
    "arith.addi": _sum,
    "arith.andi": _all,
    "arith.maximumf": _largest,
    "arith.maxsi": _largest,
    "arith.minimumf": _smallest,
    "arith.minsi": _smallest,
    "arith.mulf": _product,
    "arith.muli": _product,
    "arith.ori": _any,
}
"""An op that combines two terms -> the reduction over dims, which are kept with size 1."""
