"""Sketches of a kernel, combined from those of its loop nests with one configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from shardc.backends.tuning.space import Parameter, Sketch

NEVER = 1 << 40
"""Threshold that nothing reaches."""

NEAR = 0.002
"""Penalty for each step away from the default, so that the default wins among equal points."""

Values = Mapping[str, int]


def legal(values: Values) -> None:
    """Refuse nothing: the refusal of a sketch whose points are all legal."""


def cache_of(effect: Callable[[Values], object]) -> Callable[[Values], object]:
    """Return a cached version of ``effect``."""
    known = cache(lambda items: effect(dict(items)))
    return lambda values: known(tuple(sorted(values.items())))


def together(sketches: Sequence[Sketch]) -> Sketch:
    """Return the sketch of nests that run one after the other with one configuration."""
    if len(sketches) == 1:
        return sketches[0]
    values: dict[str, set[int]] = {}
    for parameter in (p for sketch in sketches for p in sketch.parameters):
        values.setdefault(parameter.name, set()).update(parameter.values)

    def refusal(point: Values) -> str | None:
        return next((said for sketch in sketches if (said := sketch.refusal(point)) is not None), None)

    name = "+".join(dict.fromkeys(s.name for s in sketches)) or "empty"
    parameters = tuple(Parameter(n, tuple(sorted(found))) for n, found in values.items())

    def counts(point: Values) -> Mapping[str, float]:
        total: Counter[str] = Counter()
        for sketch in sketches:
            total.update(sketch.counts(point))
        return total

    return Sketch(name, parameters, refusal, lambda point: sum(s.estimate_s(point) for s in sketches), counts)


def that_matter(
    candidates: Mapping[str, Sequence[int]], default: Values, effect: Callable[[Values], object]
) -> tuple[Parameter, ...]:
    """Return a parameter for each name whose values differ in ``effect``, with one value for each effect.

    Effects are compared with the other names at their defaults and at every other of their values. Of values
    with the same effect the first is kept, or the default's own value.
    """
    found: list[Parameter] = []
    for name, values in candidates.items():
        kept: dict[object, int] = {}
        others = [{n: v for n, v in default.items() if n != name}]
        others += [{**others[0], other: v} for other, vs in candidates.items() if other != name for v in vs]
        for value in (default[name], *values):
            kept.setdefault(tuple(effect({**rest, name: value}) for rest in others), value)
        if len(kept) > 1:
            found.append(Parameter(name, tuple(sorted(kept.values()))))
    return tuple(found)
