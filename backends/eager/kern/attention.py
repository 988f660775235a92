"""``kern.attention`` and its backward on real tensors, by the plain path of the runtime's attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from torch import Tensor
from torch_mlir import ir

from shardc.backends.body.handlers import handles
from shardc.dialects.kern.attention import AttentionOp
from shardc.dialects.kern.attention_backward import AttentionBackwardOp
from shardc.dialects.kern.attention_maps import ROLES, Attention, read_attention
from shardc.runtime.operators.attention import Problem, plain_attention, plain_attention_backward


@handles(AttentionOp, AttentionBackwardOp)
def run_attention(op: ir.Operation, operands: Sequence[Tensor], widen: bool) -> list[Tensor]:
    """Return the results of either op. ``widen``: compute in f64."""
    forward = op.name == AttentionOp.OPERATION_NAME
    spec = read_attention(op)
    roles, tensors = list(spec.tensors), operands[: len(operands) - spec.has_place]
    given = {role: _in_order(spec, role, value) for role, value in zip(roles, tensors, strict=False)}
    mask = given.get("mask")
    if mask is not None and not mask.is_floating_point():
        mask = mask.bool()
    offset = spec.q_offset + (int(operands[-1]) if spec.has_place else 0)
    problem = Problem(given["q"], given["k"], given["v"], mask, spec.causal, spec.scale, offset)
    if forward:
        out, lse = plain_attention(problem)
        found = [out, lse.masked_fill(lse == -inf, spec.unseen_lse)]
    else:
        found = list(plain_attention_backward(problem, given["grad_out"], given["out"], given["lse"]))
    return [_in_memory(spec, role, value) for role, value in zip(roles[len(tensors) :], found, strict=True)]


def _in_order(spec: Attention, role: str, value: Tensor) -> Tensor:
    """Permute a tensor to the role's dims. Dims that it lacks get size 1."""
    order, sizes = _positions(spec, role), value.shape
    unread = [at for at in range(len(sizes)) if at not in order.values()]
    shape = [sizes[order[dim]] if dim in order else 1 for dim in ROLES[role]]
    return value.permute([*order.values(), *unread]).reshape(shape)


def _in_memory(spec: Attention, role: str, value: Tensor) -> Tensor:
    order = list(_positions(spec, role).values())
    return value.permute([order.index(at) for at in range(len(order))])


def _positions(spec: Attention, role: str) -> dict[str, int]:
    order = spec.tensors[role].order
    return {dim: order[dim] for dim in ROLES[role] if dim in order}
