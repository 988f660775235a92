"""Values in padding: those that a call needs, and those that are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dim
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node
from shardc.passes.pad.finite import CHOOSE, LOSES, stays_finite
from shardc.passes.pad.span import Span, Spans, of_dim

PadValues = Mapping[tuple[int, Span], float | None]
"""The known number in a value's padding, by dim and span; None for unknown finite numbers.

Elements in the padding of two dims are ignored, because results computed from them are padding of the other
dim.
"""

_POINTING = ("aten.embedding", "aten.gather", "aten.index", "aten.scatter", "aten._unsafe_index", "aten.take")
"""Calls whose integer operands are indices of elements; padding must hold valid indices, too."""
_SHARES = {"aten._softmax": 0.0, "aten._log_softmax": -inf}


@dataclass(frozen=True)
class _PaddedFactor:
    """A factor of a call with its padding, and the pad values of the call's operands."""

    node: Node
    name: str
    spans: Spans
    operands: Sequence[PadValues] = ()

    def places(self, dims: tuple[Dim, ...]) -> list[tuple[int, Span]]:
        """Return the (dim, span) pairs of the factor's padding in a tensor."""
        sizes, own = self.node.rule.sizes, {self.name: self.spans}
        return [(d, s) for d, dim in enumerate(dims) if self.name in dim for s in of_dim(dim, sizes, own)]

    def values(self, operand: int) -> list[float | None]:
        """Return the numbers in an operand's padding of the factor; infinity if unknown."""
        known = self.operands[operand]
        return [known.get(place, inf) for place in self.places(self.node.rule.operands[operand])]

    def is_in(self, operand: int) -> bool:
        return any(self.name in dim for dim in self.node.rule.operands[operand])

    def is_zero(self, operand: int) -> bool:
        return all(number == 0 for number in self.values(operand))

    def is_finite(self, operand: int) -> bool:
        """Return whether an operand's padding is known to be finite, or it has none."""
        if not _floating(self.node.spec.tensors[operand]):
            return True
        return all(number is None or isfinite(number) for number in self.values(operand))


def needed_numbers(
    node: Node, factors: Mapping[str, Spans], operands: Sequence[PadValues]
) -> Iterator[tuple[int, int, Span, float]]:
    """Yield (operand, dim, span, number) of each padding that must be filled, because results depend on
    it.
    """
    for name, spans in factors.items():
        factor = _PaddedFactor(node, name, spans, operands)
        for operand, number in enumerate(_numbers(factor)):
            if number is not None:
                for dim, span in factor.places(node.rule.operands[operand]):
                    yield operand, dim, span, number


def _numbers(factor: _PaddedFactor) -> list[float | None]:
    """Return the number that padding of a factor must hold in each operand; None if it may stay as it is."""
    node, rule, operands = factor.node, factor.node.rule, range(len(factor.node.operands))
    numbers = list(rule.neutral_of(factor.name) or (None,) * len(operands))
    if factor.name not in rule.neutral and any(n == 0 for n in numbers):
        choices = [_for_linear(factor, linear) for linear in rule.linear if any(map(factor.is_in, linear))]
        numbers = min(choices, key=lambda c: sum(n is not None for n in c), default=numbers)
    points = node.spec.target.startswith(_POINTING)
    return [
        0.0 if number is None and points and not _floating(node.spec.tensors[i]) else number
        for i, number in enumerate(numbers)
    ]


def _for_linear(factor: _PaddedFactor, linear: frozenset[int]) -> list[float | None]:
    """Return the zeros that hide padding from a sum: in a linear set's operands; others must be finite."""
    right = lambda i: factor.is_zero(i) if i in linear else factor.is_finite(i)  # noqa: E731
    return [None if right(i) else 0.0 for i in range(len(factor.node.operands))]


def made_values(
    node: Node, result: int, factors: Mapping[str, Spans], operands: Sequence[PadValues]
) -> PadValues:
    """Return the known numbers in the padding of a call's result.

    They are zeros if its linear operands hold zeros and no other operand may be infinite, and in a softmax,
    whose padding has probability 0.
    """
    found: dict[tuple[int, Span], float | None] = {}
    type_ = node.spec.results[result]
    for name, spans in factors.items():
        factor = _PaddedFactor(node, name, spans, operands)
        places = factor.places(node.rule.results[result])
        finite = all(map(factor.is_finite, range(len(operands))))
        if name in node.rule.replicate and node.spec.target in _SHARES:
            found.update(dict.fromkeys(places, _SHARES[node.spec.target]))
        elif _makes_zeros(factor):
            found.update(dict.fromkeys(places, 0.0))
        elif type_ is not None and (not _floating(type_) or (finite and stays_finite(node, name))):
            found.update(dict.fromkeys(places))
    return found


def worth_filling(
    node: Node, result: int, factors: Mapping[str, Spans], values: PadValues
) -> Iterator[tuple[int, Span]]:
    """Yield the (dim, span) of padding that should hold zeros although no reduction reads it yet.

    These are results that may become infinite, and the start of a gradient (the loss's mean or mask), from
    which on calls are linear.
    """
    phase, target = phase_of(node.op), node.spec.target
    type_ = node.spec.results[result]
    if phase == "optimizer" or type_ is None or not _floating(type_):
        return
    loses = target in LOSES or (phase == "backward" and target in CHOOSE)
    for name, spans in factors.items():
        factor = _PaddedFactor(node, name, spans)
        spread = phase == "backward" and target == "aten.expand" and not factor.is_in(0)
        for place in factor.places(node.rule.results[result]):
            if (loses and place not in values) or (spread and values.get(place, 1.0) != 0):
                yield place


def _makes_zeros(factor: _PaddedFactor) -> bool:
    node = factor.node
    if node.spec.target in ("aten.zeros_like", "aten.zeros", "aten.new_zeros"):
        return True
    if node.spec.target in ("aten.full", "aten.full_like", "aten.new_full"):
        return node.spec["fill_value"] == 0
    if node.op.name.startswith("dist."):
        return factor.is_zero(0)
    for linear in node.rule.linear:
        zeros = all(factor.is_in(i) and factor.is_zero(i) for i in linear)
        others = [i for i in range(len(node.rule.operands)) if i not in linear and factor.is_in(i)]
        finite = all(map(factor.is_finite, others))
        if zeros and (not others or (finite and stays_finite(node, factor.name))):
            return True  # a quotient is linear in its dividend, but 0 / 0 is NaN
    return False


def _floating(type_: TensorType) -> bool:
    return type_.dtype.is_floating_point or type_.dtype.is_complex
