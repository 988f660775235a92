"""Tensors made from constants: every dim of the result is its own factor and each rank makes its block."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.pointwise import Factors, linear_sets, pointwise, results_of
from shardc.dialects.rules.rule import Dim, Local, Rule, replicated_rule, rule_for


def _created(call: OpCall) -> Rule:
    """The operand of a ``new_*`` gives dtype and device only, so its factors are its own."""
    factors = Factors()
    result = factors.shape(results_of(call)[0].shape)
    return factors.rule((factors.shape(t.shape) for t in call.tensors), (result,), (), _created_local)


def _created_local(local: Local) -> Sequence[Any]:
    """The same call with the local size, its first argument or the one after the tensor."""
    at = len(local.spec.tensors)
    return [
        local.emit(local.spec.target, *local.args[:at], results_of(local)[0].shape, *local.args[at + 1 :])
    ]


rule_for(
    "aten.empty.memory_format",
    "aten.full",
    "aten.ones",
    "aten.zeros",
    "aten.new_empty",
    "aten.new_full",
    "aten.new_ones",
    "aten.new_zeros",
)(_created)


@rule_for("aten.empty_strided", "aten.new_empty_strided")
def empty_strided(call: OpCall) -> Rule:
    """Rank programs keep their own strides."""
    factors = Factors()
    result = factors.shape(results_of(call)[0].shape)
    return factors.rule((factors.shape(t.shape) for t in call.tensors), (result,), (), _empty_local)


def _empty_local(local: Local) -> Sequence[Any]:
    made = results_of(local)[0]
    return [local.emit("aten.empty.memory_format", made.shape, made.dtype, None, *local.args[-2:])]


@rule_for("aten.full_like", "aten.zeros_like", "aten.ones_like", "aten.empty_like", "aten.fill.Scalar")
def like(call: OpCall) -> Rule:
    return pointwise(call)


@rule_for("aten.scalar_tensor")
def scalar_tensor(call: OpCall) -> Rule:
    return Rule((), ((),), {})


@rule_for(
    "aten.eye", "aten.eye.m", "aten.linspace", "aten.logspace", "aten.tril_indices", "aten.triu_indices"
)
def whole(call: OpCall) -> Rule:
    """Small tables that every rank makes for itself."""
    return replicated_rule(call)


@rule_for("aten.arange", "aten.arange.start", "aten.arange.start_step")
def arange(call: OpCall) -> Rule:
    factors = Factors()
    (dim,) = factors.shape(results_of(call)[0].shape)
    return factors.rule((), ((dim,),), (), partial(_arange_local, dim[0]) if dim else None)


def _start_and_step(call: OpCall) -> tuple[Any, Any]:
    start = 0 if call.target == "aten.arange" else call["start"]
    return start, call["step"] if call.target == "aten.arange.start_step" else 1


def _arange_local(factor: str, local: Local) -> Sequence[Any]:
    """start + step * (offset + 0, 1, ...); floats through float64, in which every index is exact.

    For an integer dtype PyTorch cuts fractions off start and step before it counts.
    """
    made = results_of(local)[0]
    if local.size(factor) == results_of(local.spec)[0].shape[0]:
        return [local.emit(local.spec.target, *local.args)]
    start, step = _start_and_step(local.spec)
    wide = torch.float64 if made.dtype.is_floating_point else made.dtype
    found = local.emit("aten.arange", local.size(factor), wide, None, *local.args[-2:])
    found = local.emit("aten.add.Scalar", found, local.offset(factor))
    if step != 1:
        found = local.emit("aten.mul.Scalar", found, step if wide == torch.float64 else int(step))
    if start != 0:
        found = local.emit("aten.add.Scalar", found, start if wide == torch.float64 else int(start))
    return [found if wide == made.dtype else local.emit("aten._to_copy", found, made.dtype)]


@rule_for("aten.tril", "aten.triu")
def triangle(call: OpCall) -> Rule:
    """Rows and columns may be cut: the diagonal moves with the rank's block."""
    factors = Factors()
    dims = factors.shape(call["self"].shape)
    return factors.rule((dims,), (dims,), linear_sets(call, ((0,),)), partial(_triangle_local, dims[-2:]))


def _triangle_local(ends: tuple[Dim, ...], local: Local) -> Sequence[Any]:
    diagonal = local.spec["diagonal"]
    for dim, sign in zip(ends, (1, -1), strict=True):
        for factor in dim:
            if local.ways(factor) > 1:
                diagonal = local.offset(factor, sign, diagonal)
    return [local.emit(local.spec.target, local.args[0], diagonal)]


@rule_for("aten.one_hot")
def one_hot(call: OpCall) -> Rule:
    """The classes stay whole: ([a])->([a,b]) replicate={b}."""
    factors = Factors()
    dims = factors.shape(call["self"].shape)
    return factors.rule((dims,), ((*dims, factors.whole(results_of(call)[0].shape[-1])),))
