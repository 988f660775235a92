"""Measured seconds of products on one core of this machine, stored in the tuning database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import cycle
from statistics import median

import torch

from shardc.compiler.profiling.conditions import conditions
from shardc.compiler.profiling.known import known_profile
from shardc.cost.ops import Product
from shardc.cost.work import COLD_BYTES
from shardc.runtime.report import progress
from shardc.runtime.torch_private import disable_current_modes
from shardc.tuner.database.profiles import record_profile

DTYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
"""Dtype of the factors, by the bytes of an element."""
MOST_COPIES = 32
CALLS = 5
"""Timed calls of a product, after one that warms up."""
BUDGET_S = 0.05
"""Seconds of calls after which a product has been called enough."""
LIMIT_S = 10.0
"""Seconds after which no other product is measured."""


def measured_products(products: Iterable[Product]) -> Mapping[Product, float]:
    """Return the seconds of products, with one thread and no other process.

    Products that were measured before are read from the tuning database; others are measured now, as many as
    the time limit allows. Those without a dtype of their element size are left out.
    """
    where = conditions(1)
    known, found = known_profile(where.processes).seconds, dict[Product, float]()
    new, started = dict[str, float](), time.perf_counter()
    for product in products:
        name = _name(product)
        if name in known:
            found[product] = known[name]
        elif product.element_bytes in DTYPES and time.perf_counter() - started < LIMIT_S:
            progress.step(f"measures {name}")
            found[product] = new[name] = _seconds(product)
    if new:
        record_profile(where, new)
    return found


def _name(p: Product) -> str:
    return f"product {p.batch} x {p.m} x {p.n} x {p.k}, {p.element_bytes} bytes"


def _seconds(p: Product) -> float:
    """Return the median seconds of a product on one thread, over factors that take turns."""
    threads, generator = torch.get_num_threads(), torch.Generator()
    copies = int(min(max(COLD_BYTES // p.moved_bytes, 1), MOST_COPIES))
    with disable_current_modes(), torch.no_grad():
        left = torch.randn(p.batch, p.m, p.k, generator=generator).to(DTYPES[p.element_bytes])
        right = torch.randn(p.batch, p.k, p.n, generator=generator).to(left.dtype)
        pairs = [(left, right), *((left.clone(), right.clone()) for _ in range(copies - 1))]
        taken = list[float]()
        torch.set_num_threads(1)
        try:
            for a, b in cycle(pairs):
                before = time.perf_counter()
                torch.bmm(a, b) if p.batch > 1 else torch.mm(a[0], b[0])
                taken.append(time.perf_counter() - before)
                if len(taken) > CALLS or (len(taken) > 1 and sum(taken) > BUDGET_S):
                    break
        finally:
            torch.set_num_threads(threads)
    return median(taken[1:])
