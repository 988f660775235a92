"""Points of the page's sliders: prices for changed parts of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product

from shardc.planning.price import Price
from shardc.planning.what_if import Amount, WhatIf
from shardc.runtime.check import Json

FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)
"""Points of each slider."""
RATES = ("links", "flops", "memory-rate")
"""Parts of the cluster that the time of a step depends on. Two sliders may change two of them at once."""
CAPACITY = "memory"
"""Part that the time does not depend on. Its slider combines with any of the others."""


def slider_points(price: Price) -> Json:
    """Return slider -> price at each of FACTORS, with the other sliders at 1."""
    return {name: [_point(price, {name: factor}) for factor in FACTORS] for name in (*RATES, CAPACITY)}


def pair_points(price: Price) -> Json:
    """Return, for each two of RATES (``links*flops``), the price at each two factors (``0.5*2``) except 1."""
    changed = [factor for factor in FACTORS if factor != 1]
    return {
        f"{one}*{other}": {
            f"{first:g}*{second:g}": _point(price, {one: first, other: second})
            for first, second in product(changed, repeat=2)
        }
        for one, other in combinations(RATES, 2)
    }


def _point(price: Price, factors: Mapping[str, float]) -> Json:
    """Return the price with parts of the cluster scaled by ``factors``."""
    cluster = price.cluster
    for name, factor in factors.items():
        if factor != 1:
            cluster = WhatIf(f"{name}={factor:g}x", name, Amount(factor, True)).cluster(cluster)
    changed = price if cluster is price.cluster else price.priced.on(cluster)
    point: Json = {"step_s": changed.time.seconds, "causes_s": dict(changed.time.causes)}
    if len(factors) > 1:
        return point
    return {"factor": next(iter(factors.values())), **point, "capacity_bytes": changed.capacity_bytes}
