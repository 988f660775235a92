"""Unequal shares of a mesh axis: how many equal parts of the batch each device along it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.mapping import Placement
from shardc.diagnostics.passes.shares import BadShares
from shardc.diagnostics.text import did_you_mean

FROM_CLUSTER = "cluster"
"""Value that replaces weights: shares follow the speeds of the cluster's devices."""
Shares = Mapping[str, tuple[int, ...]]
"""Weights by axis, one for each place along it; empty if the cluster gives them."""


def read_shares(text: str) -> dict[str, object]:
    """Parse ``data=3:1`` as ``{"data": "3:1"}``. Raises BadShares."""
    found: dict[str, object] = {}
    for part in text.split(","):
        name, equals, weights = (each.strip() for each in part.partition("="))
        if not equals or not weights or name in found:
            problem = "each axis is given once, as AXIS=WEIGHT:WEIGHT:..."
            raise BadShares(shares=repr(text), axis=name, problem=problem, instead="as in --shares data=3:1")
        found[name] = weights
    return found


def shares_of(given: object) -> object:
    """Normalize weights by axis, given as a list of numbers, as ``3:1`` or as ``cluster``.

    Raises BadShares.
    """
    if not isinstance(given, Mapping):
        return given
    return {name: _weights(str(name), weights) for name, weights in given.items()}


def _weights(axis: str, given: object) -> tuple[int, ...]:
    if given in (FROM_CLUSTER, ()):
        return ()
    parts = given.split(":") if isinstance(given, str) else given
    numbers = [_number(part) for part in parts] if isinstance(parts, Sequence) else [None]
    if not numbers or None in numbers:
        problem = "they must be whole numbers from 1, one for each place of the axis"
        instead = f"as in shares={{{axis!r}: [3, 1]}}, or {{{axis!r}: {FROM_CLUSTER!r}}} with cluster="
        raise BadShares(shares=given, axis=axis, problem=problem, instead=instead)
    return tuple(n for n in numbers if n is not None)


def _number(part: object) -> int | None:
    """Convert a positive whole number, or its text; None for anything else."""
    if isinstance(part, str):
        part = int(part) if part.isascii() and part.isdecimal() else None
    return part if isinstance(part, int) and not isinstance(part, bool) and part > 0 else None


def settled(shares: Shares, mesh: Mapping[str, int], cluster: Cluster | None) -> dict[str, tuple[int, ...]]:
    """Return shares in lowest terms, without axes whose shares are equal. Raises BadShares."""
    found = {axis: _settled(axis, weights, mesh, cluster) for axis, weights in shares.items()}
    return {axis: weights for axis, weights in found.items() if len(set(weights)) > 1}


def _settled(
    axis: str, weights: tuple[int, ...], mesh: Mapping[str, int], cluster: Cluster | None
) -> tuple[int, ...]:
    shown = ":".join(map(str, weights)) or FROM_CLUSTER
    if axis not in mesh:
        problem = f"the mesh has {', '.join(mesh)}{did_you_mean(axis, list(mesh))}"
        raise BadShares(shares=shown, axis=axis, problem=problem, instead="name an axis of the mesh")
    if not weights and cluster is None:
        instead = "pass cluster=, or the weights themselves"
        raise BadShares(shares=shown, axis=axis, problem="no cluster was given", instead=instead)
    if not weights and cluster is not None:
        devices = Placement.of(cluster, mesh).slowest_along(axis)
        weights = shares_by_speed([device.peak_flop_s("bf16") for device in devices])
    if len(weights) != mesh[axis]:
        instead = f"give {mesh[axis]} weights, such as {':'.join(map(str, _fitted(weights, mesh[axis])))}"
        problem = f"{len(weights)} weights are not one for each of {mesh[axis]} places"
        raise BadShares(shares=shown, axis=axis, problem=problem, instead=instead)
    return tuple(n // gcd(*weights) for n in weights)


def _fitted(weights: tuple[int, ...], count: int) -> list[int]:
    """Return the first ``count`` weights, padded with ones."""
    return [*weights[:count], *[1] * (count - len(weights))]


def shares_by_speed(speeds: Sequence[float]) -> tuple[int, ...]:
    """Return the smallest whole weights whose ratios to the slowest match the speeds, rounded to halves."""
    least = min(speeds)
    halves = [Fraction(round(2 * speed / least), 2) for speed in speeds]
    whole = lcm(*(half.denominator for half in halves))
    weights = [int(half * whole) for half in halves]
    return tuple(n // gcd(*weights) for n in weights)
