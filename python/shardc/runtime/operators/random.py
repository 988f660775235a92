"""``shardc::uniform``: random numbers that depend only on the seed, the op and the element.

Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) makes four 32-bit words
from a 64-bit key and a 128-bit counter. The key is the seed. Element ``(i_0, ..., i_last)`` of a global
tensor whose last dim has ``N`` elements takes word ``i_last % 4`` of the block whose counter is

    (row * ceil(N / 4) + i_last // 4,  op,  stream)        # 64, 32 and 32 bits

where ``row`` is the row-major index over the leading dims. So any rank can compute any shard, in any order,
and the result equals the slice of the whole. Stream 0 gives the first 32 bits of a number, and stream 1 the
21 additional bits of float64. A narrower dtype truncates the same number, so programs of different precision
agree. An op that needs several numbers per element (``sampling.py``) takes draw ``d`` from streams ``2 d``
and ``2 d + 1``.

The op is defined when this module is imported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .define import define

SCHEMA = (
    "(Tensor seed, int op, SymInt[] size, SymInt[] offsets, SymInt[] global_size, *, ScalarType "
    "dtype) -> Tensor"
)

Sizes = Sequence[int]

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORDS = 4
MASK = 0xFFFFFFFF
BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""Random bits of a number by dtype: as many as it represents exactly, so that 1.0 is never returned."""

CHUNK_BLOCKS = {"cpu": 1 << 17, "cuda": 1 << 22}
"""Blocks computed at once, so that temporaries (8 bytes per block) stay in the cache, or small."""


def philox(counter: Tensor, op: int, stream: int, seed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the four words of each block. ``counter``, int64, is overwritten; ``seed`` is 0-d int64.

    Only the low 32 bits of the int64 words are valid. Clearing the upper bits would take another pass over
    memory. Products wrap modulo 2**64, so their bits are those of unsigned products.
    """
    turns = torch.arange(ROUNDS, device=seed.device)
    halves = zip((seed, seed >> 32), KEY_STEPS, strict=True)
    keys = [(half + turns * step).bitwise_and_(MASK) for half, step in halves]
    one, three = counter >> 32, torch.full_like(counter, stream)
    zero, two = counter.bitwise_and_(MASK), torch.full_like(counter, op)
    for turn in range(ROUNDS):
        first, second = zero.mul_(MULTIPLIERS[0]), two.mul_(MULTIPLIERS[1])
        zero = one.bitwise_xor_(second >> 32).bitwise_xor_(keys[0][turn]).bitwise_and_(MASK)
        two = three.bitwise_xor_(first >> 32).bitwise_xor_(keys[1][turn]).bitwise_and_(MASK)
        one, three = second, first
    return zero, one, two, three


def _row_numbers(size: Sizes, offsets: Sizes, whole: Sizes, device: torch.device) -> Tensor:
    """Return the global row-major index, over the leading dims, of each local row: int64 [rows]."""
    rows = torch.zeros(1, dtype=torch.int64, device=device)
    for n, start, extent in zip(size[:-1], offsets[:-1], whole[:-1], strict=True):
        rows = (rows.unsqueeze(1) * extent + torch.arange(start, start + n, device=device)).flatten()
    return rows


def _fill(out: Tensor, counter: Tensor, op: int, seed: Tensor, draw: int) -> None:
    """Write the numbers of each block, as integers below ``2 ** bits``, to ``out`` [blocks, 4]."""
    bits = BITS[out.dtype]
    extra = bits - 32
    low = philox(counter.clone(), op, 2 * draw + 1, seed) if extra > 0 else ()
    for column, word in enumerate(philox(counter, op, 2 * draw, seed)):
        if extra > 0:
            word = (word & MASK) << extra
            word |= (low[column] >> (32 - extra)) & ((1 << extra) - 1)
        else:
            word = (word >> (32 - bits)) & ((1 << bits) - 1)
        out[:, column] = word


def _check(seed: Tensor, op: int, size: Sizes, offsets: Sizes, whole: Sizes, dtype: torch.dtype) -> None:
    """Raise ValueError for invalid arguments."""
    if seed.dtype != torch.int64 or seed.dim() != 0:
        got = f"{seed.dtype} {list(seed.shape)}"
        raise ValueError(f"shardc::uniform: seed must be a 0-d int64 tensor, got {got}")
    if dtype not in BITS:
        raise ValueError(f"shardc::uniform: dtype {dtype} is not one of {', '.join(map(str, BITS))}")
    if not 0 <= op <= MASK:
        raise ValueError(f"shardc::uniform: op must be at least 0 and below 2**32, got {op}")
    if not len(size) == len(offsets) == len(whole):
        got = f"size {list(size)}, offsets {list(offsets)} and global_size {list(whole)}"
        raise ValueError(f"shardc::uniform: {got} differ in rank")


def uniform(
    seed: Tensor,
    op: int,
    size: Sizes,
    offsets: Sizes,
    global_size: Sizes,
    *,
    dtype: torch.dtype,
    draw: int = 0,
) -> Tensor:
    """Return the shard of ``size`` at ``offsets`` of a tensor of ``global_size``, uniform in [0, 1).

    ``seed``: a 0-d int64 tensor. ``op``: number of the random op in the program. ``draw``: number of the
    draw, for ops that need several numbers per element. Elements beyond ``global_size`` (padding) get
    arbitrary numbers in the range. In bfloat16, numbers are multiples of 1/256; use float32 to compare with a
    probability. Raises ValueError for an invalid seed, dtype or op, or if sizes differ in rank.
    """
    _check(seed, op, size, offsets, global_size, dtype)
    if 0 in size:
        return torch.empty(size, dtype=dtype, device=seed.device)
    shape, starts, whole = [1, *size], [0, *offsets], [1, *global_size]  # gives a 0-d tensor a last dim
    first, skip = divmod(starts[-1], WORDS)
    blocks = math.ceil((skip + shape[-1]) / WORDS)
    rows = _row_numbers(shape, starts, whole, seed.device) * math.ceil(whole[-1] / WORDS) + first
    out = torch.empty(len(rows) * blocks, WORDS, dtype=dtype, device=seed.device)
    step = CHUNK_BLOCKS.get(seed.device.type, len(out))
    for start in range(0, len(out), step):
        block = torch.arange(start, min(start + step, len(out)), device=seed.device)
        row = block.div(blocks, rounding_mode="floor")
        counter = rows[row].add_(block).sub_(row.mul_(blocks))
        _fill(out[start : start + step], counter, op, seed, draw)
    out = out.mul_(2.0 ** -BITS[dtype]).view(len(rows), blocks * WORDS)
    return out[:, skip : skip + shape[-1]].reshape(size).contiguous()


def _fake(
    seed: Tensor, op: int, size: Sizes, offsets: Sizes, global_size: Sizes, *, dtype: torch.dtype
) -> Tensor:
    _check(seed, op, size, offsets, global_size, dtype)
    return seed.new_empty(size, dtype=dtype)


define("uniform", SCHEMA, uniform, _fake)
