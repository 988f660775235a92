"""Points of the page's sliders: prices where parts of the cluster are other than they are."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product

from shardc.planning.price import Price
from shardc.planning.what_if import Amount, WhatIf
from shardc.runtime.check import Json

FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)
"""Points of each slider."""
RATES = ("links", "flops", "memory-rate")
"""What the time of a step depends on: two of them may be changed at once."""
CAPACITY = "memory"
"""What it does not depend on, and which may be changed beside them."""


def slider_points(price: Price) -> Json:
    """Of each slider the price at each of FACTORS, the others as they are."""
    return {name: [_point(price, {name: factor}) for factor in FACTORS] for name in (*RATES, CAPACITY)}


def pair_points(price: Price) -> Json:
    """Of each two of RATES (``links*flops``) the price at each two factors (``0.5*2``) that are not 1."""
    changed = [factor for factor in FACTORS if factor != 1]
    return {
        f"{one}*{other}": {
            f"{first:g}*{second:g}": _point(price, {one: first, other: second})
            for first, second in product(changed, repeat=2)
        }
        for one, other in combinations(RATES, 2)
    }


def _point(price: Price, factors: Mapping[str, float]) -> Json:
    """The price where parts of the cluster are ``factors`` of what they are."""
    cluster = price.cluster
    for name, factor in factors.items():
        if factor != 1:
            cluster = WhatIf(f"{name}={factor:g}x", name, Amount(factor, True)).cluster(cluster)
    changed = price if cluster is price.cluster else price.priced.on(cluster)
    point: Json = {"step_s": changed.time.seconds, "causes_s": dict(changed.time.causes)}
    if len(factors) > 1:
        return point
    return {"factor": next(iter(factors.values())), **point, "capacity_bytes": changed.capacity_bytes}
