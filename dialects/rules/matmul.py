"""Rules of matrix products: splitting the contracted dim leaves partial sums; all other dims may be split.

If the contracted dim is split, only one rank adds a product's bias, so that the partial sums add up to the
call's result.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.pointwise import Factors, broadcast
from shardc.dialects.rules.rule import Dims, Local, Lower, Rule, rule_for

_FIRST_TWO = ((0,), (1,))


@rule_for("aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.vdot", "aten.matmul")
def product(call: OpCall) -> Rule:
    """Rule ([i,k],[k,j])->([i,j]) reduce={k}; batch dims broadcast, vectors have no row or column."""
    factors = Factors()
    left, right = call.tensors
    *operands, result = _contraction(factors, left.shape, right.shape, call.result.shape)
    return factors.rule(call, operands, (result,), _FIRST_TWO)


def _contraction(
    factors: Factors, left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...]
) -> tuple[Dims, Dims, Dims]:
    """Return the dims of left, right and ``left @ right`` by the rules of ``torch.matmul``.

    The contracted factor is reduced.
    """
    rows, columns = len(left) > 1, len(right) > 1
    batch = factors.shape(result[: len(result) - rows - columns])
    row = factors.shape(left[-2:-1] if rows else ())
    inner = factors.new(left[-1])
    column = factors.shape(right[-1:] if columns else ())
    factors.reduce.update({f: "sum" for f in inner})
    own = (*broadcast(batch, result[: len(batch)], left[:-2]), *row, inner)
    other = (*broadcast(batch, result[: len(batch)], right[:-2]), inner, *column)
    return own, other, (*batch, *row, *column)


@rule_for("aten.linalg_solve_triangular")
def solve_triangular(call: OpCall) -> Rule:
    """Rule of ``A X = B``, ([k,k],[k,j])->([k,j]), or ``X A = B``, ([k,k],[i,k])->([i,k]). A stays whole."""
    factors = Factors()
    triangle, other = call.tensors
    shape = call.result.shape
    batch = factors.shape(shape[:-2])
    rows, columns = other.shape[-2:]
    first, second = (factors.whole, factors.new) if call["left"] else (factors.new, factors.whole)
    matrix = (first(rows), second(columns))
    sides = tuple(map(factors.whole, triangle.shape[-2:]))
    own = (*broadcast(batch, shape[:-2], triangle.shape[:-2]), *sides)
    given = (*broadcast(batch, shape[:-2], other.shape[:-2]), *matrix)
    return factors.rule(call, (own, given), ((*batch, *matrix),), ((1,),))


@rule_for("aten.outer", "aten.ger")
def outer(call: OpCall) -> Rule:
    factors = Factors()
    rows, columns = (factors.shape(t.shape) for t in call.tensors)
    return factors.rule(call, (rows, columns), ((*rows, *columns),), _FIRST_TWO)


@rule_for("aten.addmm", "aten.baddbmm", "aten.addmv")
def product_and_bias(call: OpCall) -> Rule:
    """Rule ([i,j],[i,k],[k,j])->([i,j]) reduce={k}; the bias broadcasts."""
    factors = Factors()
    addend, left, right = call.tensors
    shape = call.result.shape
    left_dims, right_dims, result = _contraction(factors, left.shape, right.shape, shape)
    operands = (broadcast(result, shape, addend.shape), left_dims, right_dims)
    return factors.rule(call, operands, (result,), ((0, 1), (0, 2)), _bias_once(factors, 0))


@rule_for("aten.linear")
def linear(call: OpCall) -> Rule:
    """Rule ([i,k],[j,k],[j])->([i,j]) reduce={k}, with any number of row dims; the weight has a row for each
    j.
    """
    factors = Factors()
    data, weight, *bias = call.tensors
    shape = call.result.shape
    rows = factors.shape(data.shape[:-1])
    inner, column = factors.new(data.shape[-1]), factors.shape(weight.shape[:-1])
    factors.reduce.update({f: "sum" for f in inner})
    result = (*rows, *column)
    operands = [(*rows, inner), (*column, inner), *(broadcast(result, shape, b.shape) for b in bias)]
    if not bias:
        return factors.rule(call, operands, (result,), _FIRST_TWO)
    return factors.rule(call, operands, (result,), ((0, 2), (1, 2)), _bias_once(factors, 2))


def _bias_once(factors: Factors, bias: int) -> Lower | None:
    """Return a lowering that adds the argument ``bias`` on one rank only; None if no dim is contracted."""
    return partial(_bias_once_local, next(iter(factors.reduce)), bias) if factors.reduce else None


def _bias_once_local(inner: str, bias: int, local: Local) -> Sequence[object]:
    """Call the operator: ranks with the first part of the contracted factor add the bias, others zeros."""
    args = list(local.args)
    if local.ways(inner) > 1:
        args[bias] = on_first(local, inner, args[bias])
    return [local.emit(local.spec.target, *args)]


def on_first(local: Local, factor: str, value: object) -> Any:
    """Return ``value`` on ranks with the first part of a split factor, and zeros on the others."""
    part = local.emit("aten.scalar_tensor", local.offset(factor), torch.int64)
    return local.emit("aten.where.ScalarOther", local.emit("aten.eq.Scalar", part, 0), value, 0)
