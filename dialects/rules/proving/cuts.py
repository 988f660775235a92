"""The cuts that a proof runs: each factor, each pair, all factors at once, and splits over sub-axes."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import prod

from shardc.dialects.dist.axis import Axis
from shardc.dialects.rules.rule import Assignment, Rule

MOST_RANKS = 256  # cuts over more ranks are skipped; small samples stay far below

Cut = Mapping[str, int]
"""Split factor -> number of ways."""


def cuts(rule: Rule, ways: tuple[int, ...], pairs: bool) -> Iterator[Cut]:
    """Yield each distinct cut once: none; every factor in all ``ways``; every pair; all factors."""
    options = {f: _divisors(rule.sizes[f], ways) for f in rule.factors if rule.sizes[f] > 1}
    wanted: list[dict[str, int]] = [{}]
    wanted += [{f: n} for f, divisors in options.items() for n in divisors]
    if pairs:
        wanted += [{f: options[f][0], g: options[g][0]} for f, g in combinations(options, 2)]
        wanted.append({f: divisors[0] for f, divisors in options.items()})
    seen: set[frozenset[tuple[str, int]]] = set()
    for cut in wanted:
        whole = _with_majors(rule, cut)
        if whole is None or prod(whole.values()) > MOST_RANKS or frozenset(whole.items()) in seen:
            continue
        seen.add(frozenset(whole.items()))
        yield whole


def over_own_axes(cut: Cut) -> Assignment:
    """Return an assignment of each factor to an axis of its own."""
    return {f: (Axis(f, 1, n),) for f, n in cut.items()}


def over_sub_axes(rule: Rule) -> Iterator[Assignment]:
    """Yield assignments of each factor to the halves of an axis of 4, the minor half first.

    More major factors of its dims are split into single elements.
    """
    for f in rule.factors:
        if rule.sizes[f] % 4 == 0 and rule.sizes[f] > 0:
            cut = _with_majors(rule, {f: 4})
            if cut is not None and prod(cut.values()) <= MOST_RANKS:
                yield {**over_own_axes(cut), f: (Axis(f, 2, 2), Axis(f, 1, 2))}


def over_one_axis(cut: Cut) -> Assignment:
    """Return an assignment of all factors to sub-axes of one axis, which may so span several factors of a
    dim.
    """
    assignment, pre = {}, 1
    for f, n in cut.items():
        assignment[f] = (Axis("all", pre, n),)
        pre *= n
    return assignment


def _divisors(size: int, ways: Iterable[int]) -> list[int]:
    return [n for n in ways if size % n == 0] or [next(n for n in range(2, size + 1) if size % n == 0)]


def _with_majors(rule: Rule, cut: Cut) -> dict[str, int] | None:
    """Return ``cut`` with all more major factors split into single elements; None if one must stay whole."""
    full, queue = dict(cut), list(cut)
    while queue:
        f = queue.pop()
        for dim in (dim for dims in (*rule.operands, *rule.results) for dim in dims if f in dim):
            for major in dim[: dim.index(f)]:
                if major in rule.replicate and rule.sizes[major] > 1:
                    return None
                if full.get(major, 1) != rule.sizes[major]:
                    full[major] = rule.sizes[major]
                    queue.append(major)
    return full
