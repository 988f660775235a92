"""One call on padded shapes: the same operator on larger tensors, or what its rule's ``lower``
makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from shardc.dialects.aten.call import OpCall, fill
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dim, Rule, find_rule
from shardc.passes.pad.span import Spans, is_tail, of_dim, padded_size
from shardc.passes.partition.local_call import infer_types, with_defaults


def padded_types(
    tensors: Sequence[tuple[Dim, ...]],
    types: Sequence[TensorType | None],
    rule: Rule,
    factors: Mapping[str, Spans],
) -> tuple[TensorType | None, ...]:
    """The types of a call's operands or results where its factors are padded."""
    if not factors:
        return tuple(types)
    made = []
    for dims, type_ in zip(tensors, types, strict=True):
        if type_ is None:
            made.append(None)
            continue
        sizes = [
            padded_size(n, of_dim(d, rule.sizes, factors)) for n, d in zip(type_.shape, dims, strict=True)
        ]
        made.append(type_.with_shape(tuple(sizes)))
    return tuple(made)


def padded_rule(rule: Rule, factors: Mapping[str, Spans]) -> Rule:
    """The rule with its factors' padded sizes."""
    return replace(rule, sizes={f: padded_size(n, factors.get(f, ())) for f, n in rule.sizes.items()})


def works_padded(spec: OpCall, rule: Rule, factors: Mapping[str, Spans]) -> bool:
    """Whether the call on padded operands makes padded results, each element where it belongs."""
    return _works(spec, tuple(sorted(factors.items())))


@lru_cache(maxsize=16384)
def _works(spec: OpCall, factors: tuple[tuple[str, Spans], ...]) -> bool:
    rule = find_rule(spec)
    if rule is None:
        return spec.target.startswith("dist.")
    padded = dict(factors)
    operands = padded_types(rule.operands, spec.tensors, rule, padded)
    results = padded_types(rule.results, spec.results, rule, padded)
    call = (spec, fill(spec.args, list(operands)), results, padded_rule(rule, padded).sizes)
    inside = [f for f, s in padded.items() if not is_tail(rule.sizes[f], s)]
    try:
        made = rule.lower(_Types(*call)) if rule.lower is not None else infer_types(spec.target, call[1])
        return tuple(made) == results and not (
            inside and _places(rule, _Types(*call, cut=2)).intersection(inside)
        )
    except (
        Exception
    ):  # it has its sizes among its arguments, and no lower to change them; users' may raise anything
        return False


@lru_cache(maxsize=16384)
def placed_factors(spec: OpCall) -> frozenset[str]:
    """The factors of whose elements a call with a rule needs to know where they stand."""
    rule = find_rule(spec)
    if rule is None or rule.lower is None:
        return frozenset()
    local = _Types(spec, fill(spec.args, list(spec.tensors)), spec.results, rule.sizes, cut=2)
    try:
        return frozenset(_places(rule, local))
    except Exception:  # what it makes of such types may be anything, if it is a user's
        return frozenset(rule.sizes)


def _places(rule: Rule, local: _Types) -> set[str]:
    """The factors of whose elements the call needs to know where they stand: padding must not move those."""
    if rule.lower is not None:
        rule.lower(local)
    return local.placed


@dataclass(frozen=True)
class _Types:
    """A rule's :class:`Local` on types alone: what would be made where every factor is ``cut`` into so many
    ways.
    """

    spec: OpCall
    args: tuple[Any, ...]
    results: tuple[TensorType | None, ...]
    sizes: Mapping[str, int]
    cut: int = 1
    placed: set[str] = field(default_factory=set)

    def size(self, factor: str) -> int:
        return self.sizes[factor]

    def ways(self, factor: str) -> int:
        return self.cut

    def offset(self, factor: str, scale: int = 1, base: Any = 0) -> Any:
        self.placed.add(factor)
        return base

    def emit(self, target: str, *args: Any) -> Any:
        made = infer_types(target, with_defaults(target, args))
        return made[0] if len(made) == 1 else made
