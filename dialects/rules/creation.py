"""Rules of tensors made from constants: each dim of the result is a factor, and each rank makes its block."""

from collections.abc import Sequence
from functools import partial

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.pointwise import FIRST, Factors, local_sizes, pointwise, results_of
from shardc.dialects.rules.rule import Dims, Local, Lower, Rule, emit_with, replicated_rule, rule_for


@rule_for("aten.empty.memory_format", "aten.full", "aten.ones", "aten.zeros")
@rule_for("aten.new_empty", "aten.new_full", "aten.new_ones", "aten.new_zeros")
def created(call: OpCall, lower: Lower = local_sizes) -> Rule:
    """Rule whose operands and results share no factor: the operand of a ``new_*`` gives only dtype and
    device.
    """
    factors = Factors()
    result = factors.shape(call.result.shape)
    return factors.rule(call, (factors.shape(t.shape) for t in call.tensors), (result,), (), lower)


@rule_for("aten.empty_strided", "aten.new_empty_strided")
def empty_strided(call: OpCall) -> Rule:
    """Rule of ``empty_strided``: a rank computes the strides of its block."""
    return created(call, _empty_local)


def _empty_local(local: Local) -> Sequence[object]:
    made = results_of(local)[0]
    return [local.emit("aten.empty.memory_format", made.shape, made.dtype, None, *local.args[-2:])]


@rule_for("aten.full_like", "aten.zeros_like", "aten.ones_like", "aten.empty_like", "aten.fill.Scalar")
def like(call: OpCall) -> Rule:
    return pointwise(call)


@rule_for("aten.scalar_tensor", "aten.eye", "aten.eye.m", "aten.linspace", "aten.logspace")
@rule_for("aten.tril_indices", "aten.triu_indices")
def whole(call: OpCall) -> Rule:
    """Rule of small tables: every rank makes the whole table."""
    return replicated_rule(call)


@rule_for("aten.arange", "aten.arange.start", "aten.arange.start_step")
def arange(call: OpCall) -> Rule:
    factors = Factors()
    (dim,) = factors.shape(call.result.shape)
    return factors.rule(call, (), ((dim,),), (), partial(_arange_local, dim[0]) if dim else None)


def _arange_local(factor: str, local: Local) -> Sequence[object]:
    """Make a rank's block of ``arange``: start + step * (offset + 0, 1, ...).

    Floats are computed in float64, in which every index is exact. For an integer dtype PyTorch truncates
    start and step first.
    """
    made = results_of(local)[0]
    if local.ways(factor) == 1 and local.size(factor) == local.spec.result.shape[0]:
        return [local.emit(local.spec.target, *local.args)]
    target = local.spec.target
    start = 0 if target == "aten.arange" else local.spec["start"]
    step = local.spec["step"] if target == "aten.arange.start_step" else 1
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
    """Rule of ``tril`` and ``triu``. Rows and columns may be split: a rank shifts the diagonal."""
    factors = Factors()
    dims = factors.shape(call["self"].shape)
    return factors.rule(call, (dims,), (dims,), FIRST, partial(_triangle_local, dims[-2:]))


def _triangle_local(ends: Dims, local: Local) -> Sequence[object]:
    diagonal = local.spec["diagonal"]
    for dim, sign in zip(ends, (1, -1), strict=True):
        for factor in dim:
            if local.ways(factor) > 1:
                diagonal = local.offset(factor, sign, diagonal)
    return [emit_with(local, diagonal=diagonal)]


@rule_for("aten.one_hot")
def one_hot(call: OpCall) -> Rule:
    """Rule of ``one_hot``; classes stay whole: ([a])->([a,b]) replicate={b}."""
    factors = Factors()
    dims = factors.shape(call["self"].shape)
    return factors.rule(call, (dims,), ((*dims, factors.whole(call.result.shape[-1])),))
