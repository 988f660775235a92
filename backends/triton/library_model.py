"""What a call of a library takes on a GPU that is not here: cuBLAS, flash attention, or one of ATen's kernels.

A library's matmul is estimated by the model of ours, with the best of all tilings and none of what ours computes beside
it. That it gains a little on that is measured (generated Triton on an H100: 0.95 to 1.0 of cuBLAS; pytorch issues
150360, 156477).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from shardc.backends.triton import attention_model
from shardc.backends.triton.attention_model import Scores
from shardc.backends.triton.emitted import Estimate
from shardc.backends.triton.matmul_model import LAUNCH_S, Product, choose, estimate_s, flop_rate, flops_of
from shardc.backends.triton.stream_model import STREAMED
from shardc.backends.triton.targets import Target
from shardc.runtime.attention import EFFICIENT

SYNC_S = 20e-6
"""Of a copy to the host that is waited for, and of starting work on a GPU that has run out of it."""
GAIN = 0.95
"""Time of a library's matmul or attention, of that of ours, where both do the same with the same instructions."""
PLAIN = {128: 0.85, 64: 0.6, 32: 0.4}
"""Of a library's products that are no matrix instructions: rows and columns of a tile, and part of the rate."""
EFFICIENT_TIME = 1.5
"""Of PyTorch's memory-efficient attention, of that of flash attention. Assumed: no GPU was at hand to measure it."""
PASSES = 6
"""How often attention of plain ops (masks, f32) reads or writes its scores, in f32."""


def stream_call(moved_bytes: int, target: Target) -> Estimate:
    """A call that reads and writes tensors, each once."""
    seconds = LAUNCH_S + moved_bytes / (STREAMED * target.memory_bytes_s)
    return Estimate(seconds, 0, target.matmul_flop_s, moved_bytes, target.memory_bytes_s)


@lru_cache(maxsize=1024)
def matmul_call(
    batch: int, m: int, n: int, k: int, element_bytes: int, matrix: bool, target: Target, added_bytes: int = 0
) -> Estimate:
    """A product of matrices as they lie; what is added to it (``added_bytes``) is read as it is written."""
    p = Product(batch, m, n, k, element_bytes, element_bytes, matrix, finish_bytes=1)
    moved = element_bytes * batch * (m * k + n * k + m * n) + added_bytes
    if 0 in (batch, m, n, k):
        return stream_call(moved, target)
    return Estimate(
        _matmul_s(p, moved, target), flops_of(p), flop_rate(p, target), moved, target.memory_bytes_s
    )


@lru_cache(maxsize=256)
def grouped_matmul_call(
    groups: int, m: int, n: int, k: int, element_bytes: int, matrix: bool, target: Target
) -> Estimate:
    """Products of ``groups`` of one size: one kernel where PyTorch has it (CUTLASS for bf16, on sm_90 and sm_100), else
    a loop, which waits for the GPU to know how many rows each group has.
    """
    if target.arch in (90, 100) and element_bytes == 2:
        return matmul_call(groups, m, n, k, element_bytes, matrix, target)
    one = matmul_call(1, m, n, k, element_bytes, matrix, target)
    return replace(
        one,
        seconds=SYNC_S + groups * one.seconds,
        flops=groups * one.flops,
        moved_bytes=groups * one.moved_bytes,
    )


def _matmul_s(p: Product, moved_bytes: int, target: Target) -> float:
    if p.matrix:
        p = replace(p, by_descriptor=target.arch in (90, 100))
        return GAIN * estimate_s(choose(p, target), p, target)
    arithmetic_s = min(_plain_s(p, tile, target) for tile in PLAIN)
    return LAUNCH_S + max(arithmetic_s, moved_bytes / (STREAMED * target.memory_bytes_s))


def _plain_s(p: Product, tile: int, target: Target) -> float:
    tiles = p.batch * -(-p.m // tile) * -(-p.n // tile)
    tile_s = 2 * tile**2 * p.k / (PLAIN[tile] * flop_rate(p, target) / target.units)
    split = max(1, min(target.units // tiles, p.k // 256))  # sums of few tiles are cut
    return -(-tiles * split // target.units) * tile_s / split


@lru_cache(maxsize=256)
def attention_call(forward: Scores, backward: bool, library: str | None, target: Target) -> Estimate:
    """``shardc::attention`` by PyTorch: its flash kernels or the memory-efficient ones (of sm_80's instructions), as
    ``library`` says in words of ``shardc.runtime.attention``, or plain ops where it is None.
    """
    products = 5 if backward else 2
    flops = attention_model.flops_of(forward) * products // 2
    rows = forward.heads * (forward.queries + forward.keys) * (forward.size + forward.value_size)
    moved = rows * forward.element_bytes * (2 if backward else 1)
    if library is not None:
        rate = 0.6 if forward.matrix and target.arch in (90, 100) else 1.0  # mma.sync instead of wgmma
        old = replace(target, matmul_flop_s=target.matmul_flop_s * rate)
        kinds = [replace(forward, kind=kind) for kind in (("dq", "dkdv") if backward else ("forward",))]
        ours = sum(attention_model.estimate_s(attention_model.choose(s, old), s, old) for s in kinds)
        seconds = GAIN * ours * (5 / 7 if backward else 1)  # which has dq by atomics, and the scores once
        seconds *= EFFICIENT_TIME if library == EFFICIENT and forward.matrix else 1
    else:
        scores = forward.heads * forward.queries * forward.keys
        sizes = (forward.heads, forward.queries, forward.keys, forward.size, 4, False)
        passes = PASSES * (2 if backward else 1)
        seconds = products * matmul_call(*sizes, target).seconds
        seconds += passes * (LAUNCH_S + 4 * scores / (STREAMED * target.memory_bytes_s))
    return Estimate(seconds, flops, attention_model.flop_rate(forward, target), moved, target.memory_bytes_s)
