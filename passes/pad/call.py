"""A call on padded shapes: the same operator on larger tensors, or the lowering of its rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from shardc.dialects.aten.call import OpCall, fill
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dim, Rule, find_rule
from shardc.passes.pad.span import Spans, is_tail, of_dim, padded_shape, padded_size
from shardc.passes.partition.local_call import infer_types, with_defaults


def padded_types(
    tensors: Sequence[tuple[Dim, ...]],
    types: Sequence[TensorType | None],
    rule: Rule,
    factors: Mapping[str, Spans],
) -> tuple[TensorType | None, ...]:
    """Return the types of a call's operands or results with padded factors."""
    paddings = [tuple(of_dim(d, rule.sizes, factors) for d in dims) for dims in tensors]
    return tuple(
        None if type_ is None else type_.with_shape(padded_shape(type_.shape, padding))
        for type_, padding in zip(types, paddings, strict=True)
    )


def padded_rule(rule: Rule, factors: Mapping[str, Spans]) -> Rule:
    """Return the rule with the padded sizes of factors."""
    return replace(rule, sizes={f: padded_size(n, factors.get(f, ())) for f, n in rule.sizes.items()})


def works_padded(spec: OpCall, rule: Rule, factors: Mapping[str, Spans]) -> bool:
    """Return whether the call on padded operands gives correctly padded results."""
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
        fits = tuple(made) == results
        return fits and not (inside and _places(rule, *call).intersection(inside))
    except (
        Exception
    ):  # arguments contain sizes, and no lowering adapts them; a user's rule may raise anything
        return False


@lru_cache(maxsize=16384)
def placed_factors(spec: OpCall) -> frozenset[str]:
    """Return the factors for which a call depends on the positions of elements; none without a lowering."""
    rule = find_rule(spec)
    if rule is None:
        return frozenset()
    try:
        return _places(rule, spec, fill(spec.args, list(spec.tensors)), spec.results, rule.sizes)
    except Exception:  # a user's rule may raise anything
        return frozenset(rule.sizes)


def _places(
    rule: Rule,
    spec: OpCall,
    args: tuple[object, ...],
    results: tuple[TensorType | None, ...],
    sizes: Mapping[str, int],
) -> frozenset[str]:
    """Return the factors for which the call depends on positions, which padding must not shift.

    Traded factors are among them. The trial does not split these, because types have no neighbours.
    """
    local = _Types(spec, args, results, sizes, cut=frozenset(sizes) - rule.traded)
    if rule.lower is not None:
        rule.lower(local)
    return rule.traded | local.placed


@dataclass
class _Types:
    """A rule's :class:`Local` on types only, with the factors ``cut`` split in two."""

    spec: OpCall
    args: tuple[object, ...]
    results: tuple[TensorType | None, ...]
    sizes: Mapping[str, int]
    cut: frozenset[str] = frozenset()
    placed: set[str] = field(default_factory=set)

    def size(self, factor: str) -> int:
        return self.sizes[factor]

    def ways(self, factor: str) -> int:
        return 2 if factor in self.cut else 1

    def offset(self, factor: str, scale: int = 1, base: object = 0) -> object:
        self.placed.add(factor)
        return base

    def exchange(self, value: object, factor: str, sources: Sequence[int]) -> object:
        self.placed.add(factor)
        return value

    def emit(self, target: str, *args: object) -> TensorType | tuple[TensorType | None, ...] | None:
        made = infer_types(target, with_defaults(target, args))
        return made[0] if len(made) == 1 else made
