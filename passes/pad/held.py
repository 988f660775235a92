"""What padding holds: what a call needs there, and where it holds zeros already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from shardc.dialects.rules.rule import Dim, Rule
from shardc.passes.pad.stretch import Stretch, Stretches, of_dim
from shardc.passes.program import Node

Held = Mapping[tuple[int, Stretch], float]
"""What the padding of a value holds, by dim and stretch, as far as it is known.

Elements that are padding of two dims at once do not count: whatever is made of them is padding of the other dim.
"""

_POINTING = ("aten.embedding", "aten.gather", "aten.index", "aten.scatter", "aten._unsafe_index", "aten.take")
"""Calls whose integer operands point at elements: what stands in padding must point at some, too."""


def needed_numbers(node: Node, position: int, factors: Mapping[str, Stretches]) -> Iterator[tuple[int, Stretch, float]]:
    """(dim, stretch, number) of an operand's padding that results would see."""
    rule, type_ = node.rule, node.spec.tensors[position]
    points = node.spec.target.startswith(_POINTING) and not (type_.dtype.is_floating_point or type_.dtype.is_complex)
    for f, stretches in factors.items():
        neutral = rule.neutral_of(f)
        number = neutral[position] if neutral is not None else None
        if number is None and points:
            number = 0.0
        if number is None:
            continue
        for dim, names in enumerate(rule.operands[position]):
            if f in names:
                for stretch in of_dim(names, rule.sizes, {f: stretches}):
                    yield dim, stretch, number


def made_numbers(node: Node, result: int, factors: Mapping[str, Stretches], operands: Sequence[Held]) -> Held:
    """What a call leaves in the padding of a result.

    Zeros where its linear operands hold zeros and no other may hold a NaN; a softmax has no share there.
    """
    found: dict[tuple[int, Stretch], float] = {}
    for f, stretches in factors.items():
        dims = node.rule.results[result]
        if f in node.rule.replicate and node.spec.target in _SHARES:
            found.update(dict.fromkeys(_places(dims, node.rule, f, stretches), _SHARES[node.spec.target]))
        elif any(f in dim for dim in dims) and _makes_zeros(node, f, stretches, operands):
            found.update(dict.fromkeys(_places(dims, node.rule, f, stretches), 0.0))
    return found


_SHARES = {"aten._softmax": 0.0, "aten._log_softmax": -inf}


def _makes_zeros(node: Node, factor: str, stretches: Stretches, operands: Sequence[Held]) -> bool:
    rule = node.rule
    if node.spec.target in ("aten.zeros_like", "aten.zeros", "aten.new_zeros"):
        return True
    if node.op.name.startswith("dist."):
        return _is_zero(rule, 0, factor, stretches, operands)
    has = [any(factor in dim for dim in dims) for dims in rule.operands]
    for linear in rule.linear:
        exact = [i for i, t in enumerate(node.spec.tensors) if i not in linear and not t.dtype.is_floating_point]
        if all(has[i] for i in linear) and all(
            _is_zero(rule, i, factor, stretches, operands) for i, there in enumerate(has) if there and i not in exact
        ):
            return True
    return False


def _is_zero(rule: Rule, operand: int, factor: str, stretches: Stretches, operands: Sequence[Held]) -> bool:
    return all(operands[operand].get(place) == 0 for place in _places(rule.operands[operand], rule, factor, stretches))


def _places(dims: tuple[Dim, ...], rule: Rule, factor: str, stretches: Stretches) -> list[tuple[int, Stretch]]:
    return [
        (d, s) for d, names in enumerate(dims) if factor in names for s in of_dim(names, rule.sizes, {factor: stretches})
    ]
