"""Lowering of random numbers, so that kernels compute them in place instead of reading them from memory.

They are those of Philox-4x32-10 in :mod:`shardc.runtime.operators.random`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import torch

from shardc.dialects.aten.call import OpCall
from shardc.dialects.kern.size import Size, argument
from shardc.passes.fuse.lower.scalars import Scalar, Scalars, wide
from shardc.passes.fuse.lower.table import lowers, results
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Value
from shardc.runtime.operators.random import BITS, KEY_STEPS, MASK, MULTIPLIERS, ROUNDS, WORDS

Words = list[Scalar]


@lowers("shardc.uniform")
def _uniform(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    (type_,) = results(call)
    draw, size = argument(call["op"]), tuple(call["size"])
    if any(call["offsets"]) or tuple(call["global_size"]) != size:
        raise NotLowered("fills only a part of a tensor")
    last = size[-1] if size else 1
    small = not any(isinstance(n, Size) for n in size) and prod(size[:-1]) * ceil(last / WORDS) <= MASK
    dtype, dims = wide(type_.dtype), range(len(type_.shape))

    def compute(s: Scalars, seed: Scalar, row: Scalar, column: Scalar) -> Scalar:
        keys = [s.bit("and", seed, MASK), _shifted(s, seed, 32)]
        blocks = _shifted(s, s.add(s.size(last, torch.int64), WORDS - 1), 2)  # blocks of a row
        block = s.add(s.mul(row, blocks), _shifted(s, column, 2))
        op, bits = s.size(draw, torch.int64), BITS[type_.dtype]
        high = _word(s, _philox(s, block, op, 0, keys, small), column)
        if bits <= 32:  # converted from i32, because conversions of vectors from i64 to f32 are slow
            number = s.cast(_shifted(s, high, 32 - bits), torch.int32)
        else:
            low = _word(s, _philox(s, block, op, 1, keys, small), column)
            more = s.op("arith.shli", [high, s.constant(bits - 32, torch.int64)], torch.int64)
            number = s.bit("or", more, _shifted(s, low, 64 - bits))
        return s.mul(s.cast(number, dtype), 2.0**-bits)

    indices, sizes = (dims[:-1], dims[-1:]), [last, draw]
    return [b.point(compute, values, type_, dtype=dtype, heavy=True, indices=indices, sizes=sizes)]


def _philox(s: Scalars, block: Scalar, op: Scalar, stream: int, keys: Words, small: bool) -> Words:
    """Return the four words of a block of random numbers, as i64 below 2**32.

    ``small``: True if there are at most 2**32 blocks, so that their numbers have one word.
    """
    one = s.constant(0, torch.int64) if small else _shifted(s, block, 32)
    zero = block if small else s.bit("and", block, MASK)
    two, three = op, s.constant(stream, torch.int64)
    for turn in range(ROUNDS):
        first, second = s.mul(zero, MULTIPLIERS[0]), s.mul(two, MULTIPLIERS[1])
        turned = [
            s.bit("and", s.add(key, turn * step), MASK) for key, step in zip(keys, KEY_STEPS, strict=True)
        ]
        zero = s.bit("xor", s.bit("xor", _shifted(s, second, 32), one), turned[0])
        two = s.bit("xor", s.bit("xor", _shifted(s, first, 32), three), turned[1])
        one, three = s.bit("and", second, MASK), s.bit("and", first, MASK)
    return [zero, one, two, three]


def _word(s: Scalars, words: Words, column: Scalar) -> Scalar:
    """Return the word of a block that belongs to a column."""
    odd = s.compare("ne", s.bit("and", column, 1), 0)
    low, high = s.select(odd, words[1], words[0]), s.select(odd, words[3], words[2])
    return s.select(s.compare("ne", s.bit("and", column, 2), 0), high, low)


def _shifted(s: Scalars, x: Scalar, bits: int) -> Scalar:
    """Return ``x`` shifted right by ``bits``, with zeros in the highest bits."""
    return s.op("arith.shrui", [x, s.constant(bits, torch.int64)], torch.int64)
