"""Kernels as the Triton backend writes them: pointers, constants, a size, descriptors."""

import torch
import triton
import triton.language as tl

BLOCK = 64
INPUTS = 2
OUTPUTS = 1
SIZES = 1


@triton.jit
def _twice(x):
    return x * 2


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n0, BLOCK: tl.constexpr):
    """Elements."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n0
    value = tl.load(x_ptr + index, mask=inside) + _twice(tl.load(y_ptr + index, mask=inside))
    tl.store(out_ptr + index, value, mask=inside)


@triton.jit
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """A tile, by a descriptor."""
    tiles = tl.make_tensor_descriptor(x_ptr, [64, 64], [64, 1], [ROWS, BLOCK])
    at = tl.arange(0, ROWS)[:, None] * 64 + tl.arange(0, BLOCK)[None, :]
    tl.store(out_ptr + at, tiles.load([0, 0]))


def launch(x, y, out, n0):
    """Starts the kernel."""
    add[(triton.cdiv(n0, BLOCK),)](x, y, out, n0, BLOCK=BLOCK, num_warps=4, num_stages=2)


def launch_all(x, out, rows):
    """Starts the other kernel, with a constant that is not always the same."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    copy[(1, 2)](x, out, BLOCK=BLOCK, ROWS=rows, num_warps=4, num_stages=2)
