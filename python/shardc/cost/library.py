"""Times of library calls (cuBLAS, flash attention, ATen's kernels) on a GPU that is not present.

A library's matmul is estimated by our model, with the best tiling and no fused work.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Annotated

from shardc.cost import attention
from shardc.cost.attention import Scores
from shardc.cost.kernel import Estimate, copy_s
from shardc.cost.machine import Gpu
from shardc.cost.matmul import Product, estimate_s
from shardc.cost.origin import Assumed, Measured, Published
from shardc.cost.tilings import choose

_MEASURED = Published("generated Triton on an H100: 0.95 to 1.0 of cuBLAS (pytorch issues 150360, 156477)")
GAIN: Annotated[float, _MEASURED] = 0.95
"""Ratio of the time of a library's matmul or attention to ours, for the same work and instructions."""
UNALIGNED: Annotated[float, Measured("4097 x 4095 x 2056 on an H200", "decision 112")] = 5.0
"""Slowdown of a library's matmul whose rows begin at odd elements."""
PLAIN: Annotated[dict[int, float], Assumed("larger tiles load less")] = {128: 0.85, 64: 0.6, 32: 0.4}
"""Library matmuls without matrix instructions: share of the rate by rows and columns of a tile."""
EFFICIENT_TIME: Annotated[float, Assumed("no GPU was at hand (decision 54)")] = 1.5
"""Ratio of the time of PyTorch's memory-efficient attention to that of flash attention."""
PASSES: Annotated[int, Assumed("written by a product, changed by mask and softmax, read by a product")] = 6
"""How often attention of plain ops (masks, f32) reads or writes its scores, in f32."""


def stream_call(moved_bytes: int, gpu: Gpu) -> Estimate:
    """Estimate a call that reads and writes each tensor once."""
    seconds = gpu.launch_s + copy_s(moved_bytes, gpu)
    return Estimate(seconds, 0, gpu.matmul_flop_s, moved_bytes, gpu.memory_bytes_s)


@lru_cache(maxsize=1024)
def matmul_call(
    batch: int, m: int, n: int, k: int, element_bytes: int, matrix: bool, gpu: Gpu, added_bytes: int = 0
) -> Estimate:
    """Estimate a matmul of matrices in memory. An added tensor (``added_bytes``) is read while writing.

    If ``n`` or ``k`` is odd, the rows of a 2-byte factor are assumed to be unaligned.
    """
    p = Product(batch, m, n, k, element_bytes, element_bytes, matrix, finish_bytes=1)
    moved = p.moved_bytes + added_bytes
    if 0 in (batch, m, n, k):
        return stream_call(moved, gpu)
    unaligned = matrix and element_bytes == 2 and gpu.arch == 90 and (n % 2 or k % 2)
    seconds = _matmul_s(p, moved, gpu) * (UNALIGNED if unaligned else 1)
    return Estimate(seconds, p.flops, p.flop_s(gpu), moved, gpu.memory_bytes_s)


@lru_cache(maxsize=256)
def grouped_matmul_call(
    groups: int, m: int, n: int, k: int, element_bytes: int, matrix: bool, gpu: Gpu
) -> Estimate:
    """Estimate matmuls of ``groups`` of equal size.

    This is one kernel where PyTorch has it (CUTLASS for bf16 on sm_90 and sm_100). Otherwise it is a loop
    that waits for the GPU to learn the number of rows of each group.
    """
    if gpu.has_groups and element_bytes == 2:
        return matmul_call(groups, m, n, k, element_bytes, matrix, gpu)
    one = matmul_call(1, m, n, k, element_bytes, matrix, gpu)
    seconds, moved = gpu.sync_s + groups * one.seconds, groups * one.moved_bytes
    return replace(one, seconds=seconds, flops=groups * one.flops, moved_bytes=moved)


def _matmul_s(p: Product, moved_bytes: int, gpu: Gpu) -> float:
    if p.matrix:
        p = replace(p, by_descriptor=gpu.has_groups)
        return GAIN * estimate_s(choose(p, gpu), p, gpu)
    arithmetic_s = min(_plain_s(p, tile, gpu) for tile in PLAIN)
    return gpu.launch_s + max(arithmetic_s, copy_s(moved_bytes, gpu))


def _plain_s(p: Product, tile: int, gpu: Gpu) -> float:
    tiles = p.batch * -(-p.m // tile) * -(-p.n // tile)
    tile_s = 2 * tile**2 * p.k / (PLAIN[tile] * p.flop_s(gpu) / gpu.units)
    split = max(1, min(gpu.units // tiles, p.k // 256))  # the sums of few tiles are split
    return -(-tiles * split // gpu.units) * tile_s / split


@lru_cache(maxsize=256)
def attention_call(forward: Scores, backward: bool, library: str | None, gpu: Gpu) -> Estimate:
    """Estimate ``shardc::attention`` as PyTorch computes it.

    ``library`` names the kernels as in ``shardc.runtime.operators.attention``: flash, or memory-efficient
    ones (with sm_80's instructions). None means plain ops.
    """
    products = 5 if backward else 2
    flops = forward.flops * products // 2
    rows = forward.heads * (forward.queries + forward.keys) * (forward.size + forward.value_size)
    moved = rows * forward.element_bytes * (2 if backward else 1)
    if library is not None:
        rate = gpu.mma_sync if forward.matrix and gpu.has_groups else 1.0
        old = replace(gpu, matmul_flop_s=gpu.matmul_flop_s * rate)
        kinds = [replace(forward, kind=kind) for kind in (("dq", "dkdv") if backward else ("forward",))]
        ours = sum(attention.estimate_s(attention.choose(s, old), s, old) for s in kinds)
        seconds = GAIN * ours * (5 / 7 if backward else 1)  # which has dq by atomics, and the scores once
        seconds *= EFFICIENT_TIME if library == "efficient" and forward.matrix else 1
    else:
        scores = forward.heads * forward.queries * forward.keys
        sizes = (forward.heads, forward.queries, forward.keys, forward.size, 4, False)
        passes = PASSES * (2 if backward else 1)
        seconds = products * matmul_call(*sizes, gpu).seconds
        seconds += passes * (gpu.launch_s + copy_s(4 * scores, gpu))
    return Estimate(seconds, flops, forward.flop_s(gpu), moved, gpu.memory_bytes_s)
