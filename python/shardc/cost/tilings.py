"""Legal and useful tilings of a matmul on a GPU, and the one with the smallest estimate."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Annotated

from shardc.cost.machine import Gpu
from shardc.cost.matmul import (
    Product,
    Tiling,
    estimate_s,
    is_unaligned,
    registers,
    shared_bytes,
    spill_bytes,
    thread_registers,
)
from shardc.cost.origin import Assumed, Measured

FMA_BLOCK: Annotated[int, Assumed("they are held in registers, with their operands")] = 4096
"""Maximum number of elements of a tile for products without matrix instructions."""
UNALIGNED_VALUES: Annotated[int, Measured("48 tilings on an H200", "decision 112")] = 144
"""Maximum number of values of a thread if unaligned factors pass through registers.

With more, a tiling takes 1.4 to 1.6 times as long as the fastest.
"""

BLOCKS, DEPTHS = (16, 32, 64, 128, 256), (16, 32, 64, 128)
WARPS, STAGES, GROUPS, SPLITS = (1, 2, 4, 8), (2, 3, 4, 5), (1, 2, 4, 8, 16), (1, 2, 4, 8, 16)


def refusal(t: Tiling, p: Product, gpu: Gpu) -> str | None:
    """Say why a tiling does not fit into shared memory or registers; None if it does.

    Measured: a thread spills from 256 sums on. Spills once per tile cost time (:func:`estimate_s`), and are
    allowed up to twice as many bytes as a thread has registers.
    """
    if (needed := gpu.reserved_bytes + shared_bytes(t, p, gpu)) > gpu.shared_bytes:
        return f"{t.stages} stages take {needed} bytes of shared memory of {gpu.shared_bytes}"
    limit = (256 if p.direct else 224) if gpu.backend == "cuda" else 96
    if (taken := registers(t, p, gpu)) >= limit:
        return f"a thread holds {taken} values, and spills from {limit} on"
    if is_unaligned(p, gpu) and taken > UNALIGNED_VALUES:
        most = UNALIGNED_VALUES
        return f"a thread holds {taken} values, some of which pass through registers, at most {most}"
    if (spilled := spill_bytes(t, p, gpu)) > (most := 2 * thread_registers(t, gpu)):
        more = f"more than {most} are half of its registers"
        return f"a thread spills {spilled} bytes for each tile, and {more}"
    if not p.matrix and (t.block_m * t.block_n > FMA_BLOCK or t.block_k > 32):
        return f"without matrix instructions tiles have at most {FMA_BLOCK} elements and 32 terms"
    return None


def waste(t: Tiling, p: Product, gpu: Gpu) -> str | None:
    """Say why a tiling that fits is not worth a trial; None if it may be."""
    elements, threads = t.block_m * t.block_n, t.warps * gpu.warp_size
    for name, block, size in (("m", t.block_m, p.m), ("n", t.block_n, p.n), ("k", t.block_k, p.k)):
        if block >= 2 * max(16, size):
            return f"block_{name} = {block} is twice the size {size} or more"
    if t.block_k * p.element_bytes > 256:
        return f"block_k = {t.block_k} is a row of more than 256 bytes"
    if t.stages == 2 and gpu.arch == 80:
        return "2 stages are one buffer on sm_80: loads wait for products"
    if t.warps > 1 and elements < 4 * threads:
        return f"{threads} threads for {elements} elements"
    if (t.warps < 4 and elements > 32 * 32) or (t.warps == 8 and elements < 64 * 128):
        return f"{t.warps} warps for a tile of {t.block_m} x {t.block_n}"
    if t.split > 1 and (p.k < 4 * t.split * t.block_k or t.tiles(p) * t.split >= 4 * gpu.units):
        return f"{t.split} parts of {p.k} terms, with {t.tiles(p)} tiles for {gpu.units} units"
    if t.persistent and not (p.matrix and p.by_descriptor and t.tiles(p) > 2 * gpu.units):
        return f"a loop over {t.tiles(p)} tiles needs descriptors and more than {2 * gpu.units} tiles"
    return None


@lru_cache(maxsize=256)
def tilings(p: Product, gpu: Gpu) -> tuple[Tiling, ...]:
    """Return legal tilings, without wasteful ones (blocks over twice a size, splits of few terms)."""
    found: list[Tiling] = []
    for m, n, k, warps, stages in product(BLOCKS, BLOCKS, DEPTHS, WARPS, STAGES):
        t = Tiling(m, n, k, warps, stages)
        if waste(t, p, gpu) is None:
            forms = [replace(t, split=s) for s in SPLITS] + [replace(t, persistent=1)]
            worth = [f for f in forms if not (waste(f, p, gpu) or refusal(f, p, gpu))]
            found += [replace(f, group=group_of(f, p, gpu)) for f in worth]
    return tuple(found)


def group_of(t: Tiling, p: Product, gpu: Gpu) -> int:
    """Return the rows of tiles for which concurrent tiles read the fewest bytes."""
    rows, columns = -(-p.m // t.block_m), -(-p.n // t.block_n)
    wave = min(gpu.units, rows * columns)
    groups = [g for g in GROUPS if g <= rows] or [1]
    return min(groups, key=lambda g: g * t.block_m + -(-wave // g) * t.block_n)


@lru_cache(maxsize=256)
def choose(p: Product, gpu: Gpu) -> Tiling:
    """Return the legal tiling with the smallest estimate; of equal ones the first."""
    return min(tilings(p, gpu), key=lambda t: estimate_s(t, p, gpu))
