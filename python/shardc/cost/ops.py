"""Time of one operation of a program on a device.

There are three kinds: matmuls, attention, and groups of ops that pass over memory once. The first two take
the longer of arithmetic and traffic, at the share of the peak rates that library kernels reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from shardc.cost.origin import Assumed, Fitted, Measured, Published

_FITTED = Fitted("vTrain's 20 multi-node and 60 single-node rows (decision 77)")

MATMUL_REACHED: Annotated[float, _FITTED] = 0.818
"""Share of the peak that full waves of the largest tiles reach for long sums."""
FILL: Annotated[float, _FITTED] = 22.0
"""Number of terms of the sum whose time a tile needs to start and end."""
STREAM_REACHED: Annotated[float, Assumed("copies of an A100 and an H200 reach 0.85 to 0.9")] = 0.85
"""Share of the memory's rate that pointwise passes over memory reach."""
ROWS_TIME: Annotated[float, _FITTED] = 1.8
"""Slowdown of passes that reduce, normalize or draw random numbers, relative to pointwise ones."""
KEPT_RATE: Annotated[float, Assumed("L2 of an A100 delivers some 5 TB/s, its memory 2")] = 3.0
"""Ratio of the last cache's rate, which serves the previous kernel's results, to that of passes over memory.
"""
TILES: Annotated[
    dict[tuple[int, int], float], Assumed("smaller tiles fetch more for each product (tritonBLAS, 2025)")
] = {(256, 128): 1.0, (128, 128): 0.92, (128, 64): 0.75, (64, 64): 0.55}
"""Share of the largest tile's rate, by rows and columns of a tile."""
_FLASH = Published("FlashAttention-2 (Dao 2023), A100: up to 73% of the peak forward, 63% backward")
ATTENTION_REACHED: Annotated[float, _FLASH] = 0.7
"""Share of the peak that a fused attention's forward reaches."""
ATTENTION_BACKWARD_REACHED: Annotated[float, _FLASH] = 0.6
"""The same for its backward."""

_CPU = Measured("19 products of one thread of a Zen 4 (decision 136)", "2026-11-29: 0.8 to 1.35 of the time")
CPU_REACHED: Annotated[float, _CPU] = 0.95
"""Share of the rate of a product of 1,024 rows, columns and terms that others reach beside their traffic."""
PACKED: Annotated[int, _CPU] = 3
"""Passes over a product's right factor: libraries read it, write it in blocks, and read these."""


@dataclass(frozen=True)
class Product:
    """``batch`` products of [m, k] and [k, n]; ``element_bytes``: size of elements of factors and result."""

    batch: int
    m: int
    n: int
    k: int
    element_bytes: int = 2

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def moved_bytes(self) -> float:
        """Return the traffic if each tensor moves once."""
        sizes = self.m * self.k + self.k * self.n + self.m * self.n
        return float(self.batch * sizes * self.element_bytes)


class MeasuredProducts:
    """Seconds of products that were measured on a device. ``rows``: those of ``Device.products``."""

    def __init__(self, rows: Sequence[Sequence[float]]) -> None:
        self._seconds = {Product(*map(int, sizes)): seconds for *sizes, seconds in rows}
        self.flop_s = max(product.flops / seconds for product, seconds in self._seconds.items())
        """Highest rate that a product reached."""

    def seconds(self, product: Product) -> float | None:
        """Return the seconds of a product; None if it was not measured."""
        return self._seconds.get(product)


@dataclass(frozen=True)
class DeviceRates:
    """Rates by which operations are estimated, in FLOP/s and bytes/s; times in seconds.

    ``half_flop_s`` is for products of 2-byte elements, ``single_flop_s`` for 4-byte ones. ``units``:
    processors over which a product's tiles are distributed (1: no waves). ``launch_s``: time between two
    kernels of a stream. ``cache_bytes``: size of the last cache. ``is_cpu``: its products are a library's for
    CPUs, and its peaks are those of a measured product. ``measured``: seconds of single products.
    """

    half_flop_s: float
    single_flop_s: float
    memory_bytes_s: float
    units: int = 1
    launch_s: float = 0.0
    cache_bytes: float = 0.0
    matmul_reached: float = MATMUL_REACHED
    stream_reached: float = STREAM_REACHED
    is_cpu: bool = False
    measured: MeasuredProducts | None = None

    def flop_s(self, element_bytes: int) -> float:
        """Return the peak rate of products of such elements."""
        if element_bytes <= 2:
            return self.half_flop_s
        return self.single_flop_s if element_bytes == 4 else self.single_flop_s / 2


def pass_s(moved_bytes: float, is_plain: bool, rates: DeviceRates) -> float:
    """Return the seconds of one pass over so many bytes.

    ``is_plain``: pointwise and without random numbers.
    """
    kept = min(moved_bytes, rates.cache_bytes)
    seconds = (moved_bytes - kept + kept / KEPT_RATE) / (rates.stream_reached * rates.memory_bytes_s)
    return rates.launch_s + seconds * (1.0 if is_plain else ROWS_TIME)


@lru_cache(maxsize=65536)
def product_s(p: Product, rates: DeviceRates) -> float:
    """Return the seconds of a product.

    A measured product takes what was measured. Others take, on GPUs, the longer of waves of the best tiles
    and the traffic; on CPUs, the sum of arithmetic and traffic.
    """
    if not p.flops:
        return rates.launch_s
    measured_s = rates.measured.seconds(p) if rates.measured else None
    if measured_s is not None:
        return rates.launch_s + measured_s
    if rates.is_cpu:
        return rates.launch_s + _cpu_product_s(p, rates)
    arithmetic_s = min(_tiled_s(p, m, n, part, rates) for (m, n), part in TILES.items())
    return rates.launch_s + _roofline_s(arithmetic_s, p.moved_bytes, rates)


def least_product_s(p: Product, parts: int, rates: DeviceRates) -> float:
    """Return the least seconds of one of ``parts`` equal parts of a product, whichever dim is split.

    It takes no less than without waves, in the fastest tiles; if its sum is split, its parts take longer.
    Measured parts may reach the highest measured rate, whatever their traffic, which a cache may serve.
    """
    peak_flop_s = rates.flop_s(p.element_bytes)
    if rates.measured:
        return rates.launch_s + p.flops / parts / max(peak_flop_s, rates.measured.flop_s)
    arithmetic_s = p.flops / parts / peak_flop_s
    traffic_s = p.moved_bytes / parts / (rates.stream_reached * rates.memory_bytes_s)
    if rates.is_cpu:
        return rates.launch_s + arithmetic_s / CPU_REACHED + traffic_s
    waves_s = arithmetic_s * (1 + FILL / p.k) / rates.matmul_reached if p.flops else 0.0
    return rates.launch_s + max(waves_s, traffic_s)


def attention_s(
    flops: float, moved_bytes: float, element_bytes: int, backward: bool, rates: DeviceRates
) -> float:
    """Return the seconds of an attention whose scores stay out of memory."""
    reached = ATTENTION_BACKWARD_REACHED if backward else ATTENTION_REACHED
    return rates.launch_s + _roofline_s(flops / (reached * rates.flop_s(element_bytes)), moved_bytes, rates)


def other_flops_s(flops: float, moved_bytes: float, element_bytes: int, rates: DeviceRates) -> float:
    """Return the seconds of other arithmetic in products, such as a convolution's."""
    arithmetic_s = flops / (rates.matmul_reached * rates.flop_s(element_bytes))
    return rates.launch_s + _roofline_s(arithmetic_s, moved_bytes, rates)


def _cpu_product_s(p: Product, rates: DeviceRates) -> float:
    """Return the seconds on a CPU. A product with one row or column reads its factors in place."""
    packings = 0 if 1 in (p.m, p.n) else PACKED - 1
    moved = p.moved_bytes + packings * p.batch * p.k * p.n * p.element_bytes
    arithmetic_s = p.flops / (CPU_REACHED * rates.flop_s(p.element_bytes))
    return arithmetic_s + moved / (rates.stream_reached * rates.memory_bytes_s)


def _tiled_s(p: Product, rows: int, columns: int, part: float, rates: DeviceRates) -> float:
    waves = -(-(p.batch * -(-p.m // rows) * -(-p.n // columns)) // rates.units)
    rate = part * rates.matmul_reached * rates.flop_s(p.element_bytes) / rates.units
    return waves * 2 * rows * columns * (p.k + FILL) / rate


def _roofline_s(arithmetic_s: float, moved_bytes: float, rates: DeviceRates) -> float:
    traffic_s = moved_bytes / (rates.stream_reached * rates.memory_bytes_s)
    return max(arithmetic_s, traffic_s)
