"""What padding holds: what a call needs there, and where it holds zeros already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite

from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dim, Rule
from shardc.passes.manager.program import Node
from shardc.passes.pad.finite import CHOOSE, LOSES, stays_finite
from shardc.passes.pad.span import Span, Spans, of_dim
from shardc.passes.partition.storage import phase_of

Held = Mapping[tuple[int, Span], float | None]
"""What the padding of a value holds, by dim and span, as far as it is known; None for numbers that are
finite.

Elements that are padding of two dims at once do not count: whatever is made of them is padding of the other
dim.
"""

_POINTING = ("aten.embedding", "aten.gather", "aten.index", "aten.scatter", "aten._unsafe_index", "aten.take")
"""Calls whose integer operands point at elements: what stands in padding must point at some, too."""


def needed_numbers(
    node: Node, factors: Mapping[str, Spans], held: Sequence[Held]
) -> Iterator[tuple[int, int, Span, float]]:
    """(operand, dim, span, number): what must be put into padding, as results would see what is ``held``
    there.
    """
    for f, spans in factors.items():
        for operand, number in enumerate(_numbers(node, f, spans, held)):
            for dim, span in (
                _places(node.rule.operands[operand], node.rule, f, spans) if number is not None else ()
            ):
                yield operand, dim, span, number


def _numbers(node: Node, factor: str, spans: Spans, held: Sequence[Held]) -> list[float | None]:
    """What padding of a factor must hold in each operand, None where it may stay as it is."""
    rule, operands = node.rule, range(len(node.operands))
    numbers = list(rule.neutral_of(factor) or (None,) * len(operands))
    if factor not in rule.neutral and any(n == 0 for n in numbers):
        choices = [c for s in rule.linear if (c := _for_linear(node, s, factor, spans, held)) is not None]
        numbers = min(choices, key=lambda c: sum(n is not None for n in c), default=numbers)
    for i in operands:
        if (
            numbers[i] is None
            and node.spec.target.startswith(_POINTING)
            and not _floating(node.spec.tensors[i])
        ):
            numbers[i] = 0.0
    return numbers


def _for_linear(
    node: Node, linear: frozenset[int], factor: str, spans: Spans, held: Sequence[Held]
) -> list[float | None] | None:
    """The zeros by which a sum does not see a factor's padding: in the operands of one linear set; others
    must be finite.

    None if no operand of the set has the factor.
    """
    if not any(factor in dim for i in linear for dim in node.rule.operands[i]):
        return None
    zero = lambda i: _is_zero(node.rule, i, factor, spans, held)  # noqa: E731
    finite = lambda i: _is_finite(node, i, factor, spans, held[i])  # noqa: E731
    return [None if (zero(i) if i in linear else finite(i)) else 0.0 for i in range(len(node.operands))]


def made_numbers(node: Node, result: int, factors: Mapping[str, Spans], operands: Sequence[Held]) -> Held:
    """What a call leaves in the padding of a result.

    Zeros where its linear operands hold zeros and no other may hold an infinity; a softmax has no share
    there.
    """
    found: dict[tuple[int, Span], float | None] = {}
    type_, dims = node.spec.results[result], node.rule.results[result]
    for f, spans in factors.items():
        places = _places(dims, node.rule, f, spans)
        finite = all(_is_finite(node, i, f, spans, held) for i, held in enumerate(operands))
        if f in node.rule.replicate and node.spec.target in _SHARES:
            found.update(dict.fromkeys(places, _SHARES[node.spec.target]))
        elif _makes_zeros(node, f, spans, operands):
            found.update(dict.fromkeys(places, 0.0))
        elif type_ is not None and (not _floating(type_) or (finite and stays_finite(node, f))):
            found.update(dict.fromkeys(places))
    return found


def worth_filling(
    node: Node, result: int, factors: Mapping[str, Spans], held: Held
) -> Iterator[tuple[int, Span]]:
    """The (dim, span) of a result's padding that should hold zeros although no reduction reads it.

    Where it ceases to be finite; and where a gradient begins, which the loss's mean spreads or its mask
    chooses, as all that follows is linear.
    """
    phase, rule = phase_of(node.op), node.rule
    type_ = node.spec.results[result]
    if phase == "optimizer" or type_ is None or not _floating(type_):
        return
    for f, spans in factors.items():
        spread = (
            phase == "backward"
            and node.spec.target == "aten.expand"
            and f not in {g for d in rule.operands[0] for g in d}
        )
        for place in _places(rule.results[result], rule, f, spans):
            lost = place not in held and (
                node.spec.target in LOSES or (phase == "backward" and node.spec.target in CHOOSE)
            )
            if lost or (spread and held.get(place, 1.0) != 0):
                yield place


_SHARES = {"aten._softmax": 0.0, "aten._log_softmax": -inf}


def _makes_zeros(node: Node, factor: str, spans: Spans, operands: Sequence[Held]) -> bool:
    rule = node.rule
    if node.spec.target in ("aten.zeros_like", "aten.zeros", "aten.new_zeros"):
        return True
    if node.spec.target in ("aten.full", "aten.full_like", "aten.new_full"):
        return node.spec["fill_value"] == 0
    if node.op.name.startswith("dist."):
        return _is_zero(rule, 0, factor, spans, operands)
    has = [any(factor in dim for dim in dims) for dims in rule.operands]
    for linear in rule.linear:
        zeros = all(has[i] and _is_zero(rule, i, factor, spans, operands) for i in linear)
        others = [i for i, there in enumerate(has) if there and i not in linear]
        finite = all(_is_finite(node, i, factor, spans, operands[i]) for i in others)
        if zeros and (not others or (finite and stays_finite(node, factor))):
            return True  # a quotient is linear in its dividend, and 0 / 0 is no zero
    return False


def _is_finite(node: Node, operand: int, factor: str, spans: Spans, held: Held) -> bool:
    """Whether an operand's padding of ``factor`` is known to be finite, or it has none."""
    if not _floating(node.spec.tensors[operand]):
        return True
    for place in _places(node.rule.operands[operand], node.rule, factor, spans):
        number = held.get(place, inf)
        if number is not None and not isfinite(number):
            return False
    return True


def _floating(type_: TensorType) -> bool:
    return type_.dtype.is_floating_point or type_.dtype.is_complex


def _is_zero(rule: Rule, operand: int, factor: str, spans: Spans, operands: Sequence[Held]) -> bool:
    return all(
        operands[operand].get(place) == 0 for place in _places(rule.operands[operand], rule, factor, spans)
    )


def _places(dims: tuple[Dim, ...], rule: Rule, factor: str, spans: Spans) -> list[tuple[int, Span]]:
    return [
        (d, s)
        for d, names in enumerate(dims)
        if factor in names
        for s in of_dim(names, rule.sizes, {factor: spans})
    ]
