"""One call on padded shapes: the same operator on larger tensors, or what its rule's ``lower`` makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from shardc.dialects.aten.call import OpCall, fill
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dim, Rule
from shardc.passes.pad.stretch import Stretches, is_tail, of_dim, padded_size
from shardc.passes.partition.local_call import infer_types, with_defaults

_UNPLACED = frozenset(
    f"aten.{name}"
    for name in (
        "view", "_unsafe_view", "reshape", "_reshape_alias", "flatten.using_ints", "unflatten.int", "expand", "squeeze",
        "squeeze.dim", "squeeze.dims", "mean", "mean.dim", "full", "ones", "zeros", "new_full", "new_ones", "new_zeros",
        "empty.memory_format", "new_empty", "empty_strided", "new_empty_strided",
    )
)  # fmt: skip
"""Calls whose local form differs, but not by where an element stands: padding may stand in the middle of a dim."""


def padded_types(
    tensors: Sequence[tuple[Dim, ...]],
    types: Sequence[TensorType | None],
    rule: Rule,
    factors: Mapping[str, Stretches],
) -> tuple[TensorType | None, ...]:
    """The types of a call's operands or results where its factors are padded."""
    made = []
    for dims, type_ in zip(tensors, types, strict=True):
        if type_ is None:
            made.append(None)
            continue
        sizes = [padded_size(n, of_dim(d, rule.sizes, factors)) for n, d in zip(type_.shape, dims, strict=True)]
        made.append(type_.with_shape(tuple(sizes)))
    return tuple(made)


def padded_rule(rule: Rule, factors: Mapping[str, Stretches]) -> Rule:
    """The rule with its factors' padded sizes."""
    return replace(rule, sizes={f: padded_size(n, factors.get(f, ())) for f, n in rule.sizes.items()})


def works_padded(spec: OpCall, rule: Rule, factors: Mapping[str, Stretches]) -> bool:
    """Whether the call on padded operands makes padded results, each element where it belongs."""
    return _works(spec, tuple(sorted(factors.items())))


@lru_cache(maxsize=16384)
def _works(spec: OpCall, factors: tuple[tuple[str, Stretches], ...]) -> bool:
    from shardc.dialects.rules.rule import find_rule

    rule = find_rule(spec)
    if rule is None:
        return spec.target.startswith("dist.")
    padded = dict(factors)
    if rule.lower is not None and spec.target not in _UNPLACED:
        if not all(is_tail(rule.sizes[f], s) for f, s in padded.items()):
            return False
    operands = padded_types(rule.operands, spec.tensors, rule, padded)
    results = padded_types(rule.results, spec.results, rule, padded)
    local = _Types(spec, fill(spec.args, list(operands)), results, padded_rule(rule, padded).sizes)
    try:
        made = rule.lower(local) if rule.lower is not None else local.run()
    except (RuntimeError, IndexError, ValueError, TypeError):
        return False  # the operator has its sizes among its arguments, and no lower to change them
    return tuple(made) == results


@dataclass(frozen=True)
class _Types:
    """A rule's :class:`Local` on types alone: what would be made."""

    spec: OpCall
    args: tuple[Any, ...]
    results: tuple[TensorType | None, ...]
    sizes: Mapping[str, int]

    def size(self, factor: str) -> int:
        return self.sizes[factor]

    def ways(self, factor: str) -> int:
        return 1

    def offset(self, factor: str, scale: int = 1, base: Any = 0) -> Any:
        return base

    def run(self) -> tuple[TensorType | None, ...]:
        return infer_types(self.spec.target, self.args)

    def emit(self, target: str, *args: Any) -> Any:
        made = infer_types(target, with_defaults(target, args))
        return made[0] if len(made) == 1 else made
