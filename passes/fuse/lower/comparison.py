"""Lowerings of comparisons, logical ops, and selections between two values."""

from __future__ import annotations

from math import inf

import torch

from shardc.passes.fuse.lower.scalars import Operand, Scalar, Scalars
from shardc.passes.fuse.lower.table import comparison, pointwise, untyped

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    comparison(f"{_name}.Tensor {_name}.Scalar", lambda s, x, y, _name=_name: _compare(s, _name, x, y))


def _compare(s: Scalars, predicate: str, x: Scalar, y: Scalar) -> Scalar:
    if x.dtype == torch.bool and predicate not in ("eq", "ne"):
        x, y = s.cast(x, torch.int32), s.cast(y, torch.int32)
    return s.compare(predicate, x, y)


def _infinite(s: Scalars, predicate: str, x: Scalar) -> Scalar:
    if not x.dtype.is_floating_point:
        return s.constant(False, torch.bool)
    return s.compare(predicate, s.math("absf", x), inf)


comparison("isnan", lambda s, x: s.compare("ne", x, x))
comparison("isinf", lambda s, x: _infinite(s, "eq", x))
comparison("logical_not", lambda s, x: s.logical_not(x))


for _bit in ("and", "or", "xor"):
    untyped(f"logical_{_bit}", lambda s, *xs, _bit=_bit: s.bit(_bit, *(s.cast(x, torch.bool) for x in xs)))
pointwise("bitwise_not", lambda s, x: s.bit("xor", x, True if x.dtype == torch.bool else -1))


def _where(s: Scalars, condition: Scalar, x: Operand, y: Operand) -> Scalar:
    return s.select(s.cast(condition, torch.bool), s.cast(x, s.compute), s.cast(y, s.compute))


untyped("where.self where.ScalarOther where.ScalarSelf where.Scalar", _where)
untyped("masked_fill.Scalar masked_fill.Tensor", lambda s, x, mask, value: _where(s, mask, value, x))
