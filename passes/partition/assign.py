"""Choice of the axes that split each factor of a call, from the requests of its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.dialects.dist.sharding import Axes, Sharding
from shardc.dialects.rules.rule import Rule, factor_axes, representable


@dataclass(frozen=True)
class Request:
    """Request of a tensor: its sharding, the rounds in which it got its axes, and its size."""

    sharding: Sharding
    priorities: tuple[tuple[str, int], ...]
    size_bytes: int


def assign(rule: Rule, requests: Sequence[Request]) -> dict[str, Axes]:
    """Return an assignment that every tensor of the call can represent.

    If two factors request an axis, the request of the earlier round wins; then the factor whose tensors have
    more bytes, because moving the smaller ones is cheaper; then the first.
    """
    tensors = rule.operands + rule.results
    claims: dict[tuple[str, Axes], tuple[int, int, int]] = {}
    for order, (dims, request) in enumerate(zip(tensors, requests, strict=True)):
        rounds = dict(request.priorities)
        for f, axes in factor_axes(dims, request.sharding, rule.sizes).items():
            if f in rule.replicate:
                continue
            for end in range(1, len(axes) + 1):
                key = (f, axes[:end])
                priority = max(rounds.get(a.name, 0) for a in axes[:end])
                old = claims.get(key, (priority, 0, order))
                claims[key] = (min(old[0], priority), old[1] - request.size_bytes, old[2])
    chosen: dict[str, Axes] = {}
    waiting = sorted(claims, key=lambda c: (claims[c][0], len(c[1]), claims[c][1], claims[c][2]))
    while waiting:
        before, later = chosen, []
        for f, axes in waiting:
            if chosen.get(f, ()) != axes[:-1]:
                continue
            candidate = {**chosen, f: axes}
            if any(axes[-1].overlaps(used) for cut in chosen.values() for used in cut):
                continue
            if all(representable(dims, candidate, rule.sizes) for dims in tensors):
                chosen = candidate
            else:
                later.append((f, axes))  # until a more major factor is split
        waiting = later if chosen != before else []
    return chosen


def passing(rule: Rule, operands: Sequence[Sharding]) -> tuple[frozenset[int], Axes]:
    """Return the operands that may stay partial sums through the call, and the axes; empty if none may.

    They are one of the rule's linear sets. The axes are those of all its operands that split no other
    operand.
    """
    for linear in rule.linear:
        terms = [{a for r, a in operands[i].partial if r == "sum"} for i in linear]
        shared = set.intersection(*terms) if terms else set()
        others = [a for i, o in enumerate(operands) if i not in linear for a in o.used]
        shared = {a for a in shared if not any(a.overlaps(o) for o in others)}
        if shared:
            return linear, tuple(sorted(shared))
    return frozenset(), ()


def without(chosen: dict[str, Axes], axes: Axes) -> dict[str, Axes]:
    """Return the assignment without ``axes`` and without the axes that are more minor in the same factor."""
    free: dict[str, Axes] = {}
    for f, cut in chosen.items():
        end = next((i for i, a in enumerate(cut) if any(a.overlaps(b) for b in axes)), len(cut))
        if end:
            free[f] = cut[:end]
    return free
