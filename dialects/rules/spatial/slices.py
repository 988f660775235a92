"""Rules of slices of a dim and of their gradients.

A dim that is not sliced may be split. A slice of every s-th element is ``([(a b)])->([a])``. A slice of the
first elements of a dim may be padded with the following elements, and its gradient with zeros. Dims with
other slices stay whole; for images, ``torch-round-pads`` rewrites such a slice as a negative pad.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.pointwise import FIRST, Factors, aligned, results_of
from shardc.dialects.rules.rule import Dim, Local, Rule, emit_with, rule_for

_GRADIENT, _SCATTER = "aten.slice_backward", "aten.slice_scatter"


@rule_for("aten.slice.Tensor", _GRADIENT)
def slice_(call: OpCall) -> Rule:
    large, small = call.tensors[0].shape, call.result.shape
    if call.target == _GRADIENT:
        large, small = small, large
    dim = call["dim"] % len(large)
    if call["step"] > 1 and large[dim] == small[dim] * call["step"] and 0 <= _start(call) < call["step"]:
        return _strided(call, large, dim)
    rule = aligned(call, sets=FIRST, lower=_local)
    first = _first_elements(call, rule, dim)
    if not first:
        return rule
    number = 0.0 if call.target == _GRADIENT else None
    return replace(rule, neutral=dict.fromkeys(first, (number,)), lower=partial(_first_local, *first))


def _start(call: OpCall) -> int:
    return call["start"] or 0


def _strided(call: OpCall, large: tuple[int, ...], dim: int) -> Rule:
    """Return the rule of a strided slice: blocks of the large side have ``step`` times as many elements."""
    factors = Factors()
    taken = factors.shape(size // call["step"] if d == dim else size for d, size in enumerate(large))
    whole = (*taken[:dim], taken[dim] + factors.whole(call["step"]), *taken[dim + 1 :])
    operand, result = (taken, whole) if call.target == _GRADIENT else (whole, taken)
    return factors.rule(call, (operand,), (result,), FIRST, partial(_strided_local, taken[dim]))


def _strided_local(taken: Dim, local: Local) -> Sequence[object]:
    count = local.size(taken[0]) if taken else 1
    changed: dict[str, object] = {"end": count * local.spec["step"]}
    if local.spec.target == _GRADIENT:
        changed["input_sizes"] = results_of(local)[0].shape
    return [emit_with(local, **changed)]


def _first_elements(call: OpCall, rule: Rule, dim: int) -> Dim:
    """Return the factor of a slice of a dim's first elements; () for other slices."""
    if _start(call) or call["step"] != 1:
        return ()
    (dims,) = rule.operands if call.target == _GRADIENT else rule.results
    return tuple(f for f in dims[dim] if f in rule.replicate)


def _first_local(factor: str, local: Local) -> Sequence[object]:
    changed: dict[str, object] = {"end": local.size(factor)}
    if local.spec.target == _GRADIENT:
        changed["input_sizes"] = results_of(local)[0].shape
    return [emit_with(local, **changed)]


@rule_for(_SCATTER)
def slice_scatter(call: OpCall) -> Rule:
    return aligned(call, sets=((0, 1),), lower=_local)


def _local(local: Local) -> Sequence[object]:
    """Call the operator on a rank's block, with a local end for a slice of a whole dim."""
    changed: dict[str, object] = {}
    made = results_of(local)[0].shape
    dim = local.spec["dim"] % len(made)
    sizes = {t.shape[dim] for t in (*local.spec.tensors, *results_of(local.spec))}
    if len(sizes) == 1 and local.spec["end"] is not None:
        changed["end"] = max(local.spec["end"], made[dim])
    if local.spec.target == _GRADIENT:
        changed["input_sizes"] = made
    return [emit_with(local, **changed)]
