"""matmul.

From -:3.
"""

import torch
import triton
import triton.language as tl


BLOCK_M = 128
BLOCK_N = 128
BLOCK_K = 32
GROUP = 8
PROGRAMS = 132


INPUTS = 3
OUTPUTS = 1
SIZES = 0
# of launch's parameters


M = tl.constexpr(4096)
N = tl.constexpr(4096)
K = tl.constexpr(4096)


@triton.jit
def matmul_place(number, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a tile. GROUP rows of tiles run together: they read the same columns while those are in L2."""
    rows = tl.cdiv(M, BLOCK_M)
    columns = tl.cdiv(N, BLOCK_N)
    first = number // (GROUP * columns) * GROUP
    height = tl.minimum(rows - first, GROUP)
    within = number % (GROUP * columns)
    return first + within % height, within // height


@triton.jit
def matmul_sum(
    left_tiles, right_tiles, first_m, first_n, low, high, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The products of one tile, added up over the terms from low to high."""
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in tl.range(low, high, BLOCK_K):
        total = tl.dot(left_tiles.load([first_m, start]), right_tiles.load([first_n, start]).T, total)
    return total


@triton.jit
def matmul_finish(total, x_3_ptr, out_ptr, m, n):
    """What is made of one tile of the product."""
    x_3 = tl.load(x_3_ptr + n[None, :])
    t = tl.maximum((total + x_3.to(tl.float32)), tl.full([], 0.0, tl.float32), propagate_nan=tl.PropagateNan.ALL)
    # -:17
    v = t.to(tl.bfloat16)
    at = m[:, None] * 4096 + n[None, :]
    tl.store(out_ptr + at, v)


def allocate(size, alignment, stream):
    """Memory for tensor descriptors, which Triton asks for at each launch."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


@triton.jit
def matmul(
    x_ptr, x_2_ptr, x_3_ptr, out_ptr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
):
    """PROGRAMS programs, one for each unit of the GPU: each takes tile after tile."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    left_tiles = tl.make_tensor_descriptor(x_ptr, [M, K], [4096, 1], [BLOCK_M, BLOCK_K])
    right_tiles = tl.make_tensor_descriptor(x_2_ptr, [N, K], [4096, 1], [BLOCK_N, BLOCK_K])
    for job in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        row, column = matmul_place(job, BLOCK_M, BLOCK_N, GROUP)
        first_m, first_n = row * BLOCK_M, column * BLOCK_N
        m = first_m + tl.arange(0, BLOCK_M)
        n = first_n + tl.arange(0, BLOCK_N)
        total = matmul_sum(left_tiles, right_tiles, first_m, first_n, 0, K, BLOCK_M, BLOCK_N, BLOCK_K)
        matmul_finish(total, x_3_ptr, out_ptr, m, n)


def launch(x, x_2, x_3, out):
    """Starts the kernel: contiguous tensors, results last, then sizes."""
    x = x if x.data_ptr() % 16 == 0 else x.clone()  # for descriptors
    x_2 = x_2 if x_2.data_ptr() % 16 == 0 else x_2.clone()  # for descriptors
    triton.set_allocator(allocate)
    matmul[(PROGRAMS,)](x, x_2, x_3, out, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP=GROUP, PROGRAMS=PROGRAMS, num_warps=4, num_stages=3)
