"""Propagation through one call, as a pure function whose results are cached for equal calls."""

from __future__ import annotations

from itertools import takewhile

from shardc.dialects.dist.sharding import Axes, Sharding
from shardc.dialects.rules.rule import Dim, Rule, dims_under, factor_axes, representable


def propagate_through(rule: Rule, shardings: tuple[Sharding, ...]) -> tuple[Sharding, ...]:
    """Return the shardings of a call's tensors (operands, then results) after propagation over its factors.

    Each factor offers the longest list of axes that no tensor contradicts. A tensor takes an offered axis if
    its dim is open, the tensor does not use the axis elsewhere, and the sharding can express the split.
    """
    tensors = rule.operands + rule.results
    cuts = [factor_axes(dims, s, rule.sizes) for dims, s in zip(tensors, shardings, strict=True)]
    offers = {f: offer for f in rule.factors if (offer := _agreed([c.get(f, ()) for c in cuts]))}
    if not offers:
        return shardings
    return tuple(
        _extend(dims, sharding, cut, offers, rule)
        for dims, sharding, cut in zip(tensors, shardings, cuts, strict=True)
    )


def _agreed(lists: list[Axes]) -> Axes:
    """Return the longest list if all others are prefixes of it, else the common prefix of non-empty lists."""
    longest: Axes = max(lists, key=len)
    if all(longest[: len(axes)] == axes for axes in lists):
        return longest
    given = [axes for axes in lists if axes]
    same = takewhile(lambda column: len(set(column)) == 1, zip(*given, strict=False))
    return tuple(column[0] for column in same)


def _extend(
    dims: tuple[Dim, ...], sharding: Sharding, cut: dict[str, Axes], offers: dict[str, Axes], rule: Rule
) -> Sharding:
    used = list(sharding.used)
    new: dict[str, Axes] = dict(cut)
    for dim, is_open in zip(dims, sharding.open, strict=True):
        if not is_open:
            continue
        for f in dim:
            have: Axes = new[f] if f in new else ()
            offer: Axes = offers[f] if f in offers else ()
            if offer[: len(have)] != have:
                continue
            for axis in offer[len(have) :]:
                have = (*have, axis)
                candidate: dict[str, Axes] = {**new, f: have}
                if any(axis.overlaps(u) for u in used) or not representable(dims, candidate, rule.sizes):
                    break
                new = candidate
                used.append(axis)
    if new == cut:
        return sharding
    return Sharding(dims_under(dims, new), sharding.partial, sharding.open)
