"""``shardc::poisson``, ``binomial`` and ``standard_gamma``, whose number of draws depends on values.

Each element draws from ``shardc::uniform``'s counters independently, until it is done. Its sample depends
only on the seed, the op, its position in the global tensor, and its parameters. All computation is in
float64.

The ops are defined when this module is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .define import define
from .random import Sizes, uniform

PLACE = "Tensor seed, int op, SymInt[] offsets, SymInt[] global_size) -> Tensor"
SCHEMAS = {
    "poisson": f"(Tensor rate, {PLACE}",
    "binomial": f"(Tensor count, Tensor prob, {PLACE}",
    "standard_gamma": f"(Tensor alpha, {PLACE}",
}

REJECTION_FROM = 10.0
"""Smallest mean that is sampled by rejection, which is proved only for these. Smaller ones use inversion."""
TERMS = 128
"""Maximum number of terms of the inversion. A mean below 10 needs more with probability below 1e-80."""
ROUNDS = 64
"""Maximum rounds of rejection, which accepts at least 70%. Elements left after them become NaN, since only
NaN parameters take that long.
"""

Numbers = Callable[[int], Tensor]
"""Function of a draw's number that returns its uniform numbers: float64, in the parameters' shape."""


def poisson(rate: Tensor, seed: Tensor, op: int, offsets: Sizes, global_size: Sizes) -> Tensor:
    """Sample counts of events at ``rate`` [n...] (a shard), in its dtype; NaN for a negative rate."""
    numbers = _numbers(rate, seed, op, offsets, global_size)
    rates = rate.double()
    small = rates < REJECTION_FROM
    few = _invert(numbers, torch.exp(-rates), lambda k: rates / k, small & (rates >= 0))
    made = torch.where(small, few, _rejected_poisson(numbers, rates, ~small))
    return torch.where(rates >= 0, made, math.nan).to(rate.dtype)


def binomial(
    count: Tensor, prob: Tensor, seed: Tensor, op: int, offsets: Sizes, global_size: Sizes
) -> Tensor:
    """Sample successes in ``count`` [n...] trials of probability ``prob`` [n...], in count's dtype.

    Invalid parameters give NaN.
    """
    numbers = _numbers(count, seed, op, offsets, global_size)
    counts, chance = count.double(), prob.double()
    p = torch.minimum(chance, 1 - chance)
    valid = (counts >= 0) & (p >= 0)
    small = counts * p < REJECTION_FROM
    none = torch.exp(counts * torch.log1p(-p))
    few = _invert(numbers, none, lambda k: (counts - k + 1) / k * (p / (1 - p)), small & valid)
    made = torch.where(small, few, _rejected_binomial(numbers, counts, p, valid & ~small))
    return torch.where(valid, torch.where(chance > 0.5, counts - made, made), math.nan).to(count.dtype)


def standard_gamma(alpha: Tensor, seed: Tensor, op: int, offsets: Sizes, global_size: Sizes) -> Tensor:
    """Sample with shape ``alpha`` [n...] > 0 and rate 1, in its dtype, at least its smallest normal number.

    Marsaglia and Tsang, "A simple method for generating gamma variables", TOMS 2000; section 6 for alpha < 1.
    """
    numbers = _numbers(alpha, seed, op, offsets, global_size)
    wanted = alpha.double()
    boosted = torch.where(wanted < 1, wanted + 1, wanted)
    d = boosted - 1 / 3
    c = 1 / torch.sqrt(9 * d)

    def propose(turn: int) -> tuple[Tensor, Tensor]:
        radius = torch.sqrt(-2 * torch.log1p(-numbers(3 * turn + 1)))
        x = radius * torch.cos(2 * math.pi * numbers(3 * turn + 2))
        v = (1 + c * x) ** 3
        bound = 0.5 * x * x + d - d * v + d * torch.log(v)
        return d * v, (v > 0) & (torch.log1p(-numbers(3 * turn + 3)) < bound)

    made = _reject(propose, wanted > 0)
    scale = torch.where(wanted < 1, (1 - numbers(0)) ** (1 / wanted), 1.0)
    return (made * scale).clamp(min=torch.finfo(alpha.dtype).tiny).to(alpha.dtype)


def _numbers(like: Tensor, seed: Tensor, op: int, offsets: Sizes, global_size: Sizes) -> Numbers:
    return lambda draw: uniform(seed, op, like.shape, offsets, global_size, dtype=torch.float64, draw=draw)


def _invert(numbers: Numbers, first: Tensor, ratio: Callable[[int], Tensor], wanted: Tensor) -> Tensor:
    """Return how many of a distribution's cumulative terms are below a uniform number.

    ``first``: the first term. ``ratio``: number of a term -> its ratio to the term before.
    """
    found, below, term, left = torch.zeros_like(first), first, first, numbers(0)
    for k in range(1, TERMS):
        beyond = wanted & (left >= below)
        if not beyond.any():
            break
        found = torch.where(beyond, float(k), found)
        term = term * ratio(k)
        below = below + term
    return found


def _rejected_poisson(numbers: Numbers, rates: Tensor, wanted: Tensor) -> Tensor:
    """Sample by PTRS (Hörmann, "The transformed rejection method for generating Poisson variables", 1993)."""
    b = 0.931 + 2.53 * torch.sqrt(rates)
    a = -0.059 + 0.02483 * b
    inverse_alpha, squeeze = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)

    def propose(turn: int) -> tuple[Tensor, Tensor]:
        u, v = numbers(2 * turn) - 0.5, numbers(2 * turn + 1)
        us = 0.5 - u.abs()
        k = torch.floor((2 * a / us + b) * u + rates + 0.43)
        hat = torch.log(v * inverse_alpha / (a / (us * us) + b))
        density = k * torch.log(rates) - rates - torch.lgamma(k + 1)
        return k, (k >= 0) & (((us >= 0.07) & (v <= squeeze)) | (hat <= density))

    return _reject(propose, wanted)


def _rejected_binomial(numbers: Numbers, n: Tensor, p: Tensor, wanted: Tensor) -> Tensor:
    """Sample by BTRS (Hörmann, "The generation of binomial random variates", 1993), for p <= 1/2."""
    deviation, odds, mode = torch.sqrt(n * p * (1 - p)), torch.log(p / (1 - p)), torch.floor((n + 1) * p)
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    alpha, squeeze = (2.83 + 5.1 / b) * deviation, 0.92 - 4.2 / b
    highest = torch.lgamma(mode + 1) + torch.lgamma(n - mode + 1)

    def propose(turn: int) -> tuple[Tensor, Tensor]:
        u, v = numbers(2 * turn) - 0.5, numbers(2 * turn + 1)
        us = 0.5 - u.abs()
        k = torch.floor((2 * a / us + b) * u + n * p + 0.5)
        hat = torch.log(v * alpha / (a / (us * us) + b))
        density = highest - torch.lgamma(k + 1) - torch.lgamma(n - k + 1) + (k - mode) * odds
        return k, (k >= 0) & (k <= n) & (((us >= 0.07) & (v <= squeeze)) | (hat <= density))

    return _reject(propose, wanted)


def _reject(propose: Callable[[int], tuple[Tensor, Tensor]], wanted: Tensor) -> Tensor:
    """Return the first accepted proposal of each wanted element; NaN for the others."""
    made, left = torch.full(wanted.shape, math.nan, dtype=torch.float64, device=wanted.device), wanted
    for turn in range(ROUNDS):
        if not left.any():
            break
        proposal, accepted = propose(turn)
        made = torch.where(left & accepted, proposal, made)
        left = left & ~accepted
    return made


def _fake(parameter: Tensor, *others: object) -> Tensor:
    return torch.empty_like(parameter, memory_format=torch.contiguous_format)


for _function in (poisson, binomial, standard_gamma):
    define(_function.__name__, SCHEMAS[_function.__name__], _function, _fake)
