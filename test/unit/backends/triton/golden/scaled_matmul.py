"""scaled_matmul.

From -:3.
"""

import triton
import triton.language as tl


BLOCK_M = 128
BLOCK_N = 128
BLOCK_K = 32
GROUP = 8


INPUTS = 3
OUTPUTS = 1
SIZES = 0
# of launch's parameters


M = tl.constexpr(1000)
N = tl.constexpr(777)
K = tl.constexpr(500)


@triton.jit
def scaled_matmul_place(number, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a tile. GROUP rows of tiles run together: they read the same columns while those are in L2."""
    rows = tl.cdiv(M, BLOCK_M)
    columns = tl.cdiv(N, BLOCK_N)
    first = number // (GROUP * columns) * GROUP
    height = tl.minimum(rows - first, GROUP)
    within = number % (GROUP * columns)
    return first + within % height, within // height


@triton.jit
def scaled_matmul_sum(
    x_ptr, x_2_ptr, x_3_ptr, m, n, low, high, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The products of one tile, added up over the terms from low to high."""
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    x_2 = tl.load(x_2_ptr + m[:, None], mask=(m[:, None] < M), other=0)
    for start in tl.range(low, high, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        at = m[:, None] * 500 + k[None, :]
        x = tl.load(x_ptr + at, mask=(m[:, None] < M) & (k[None, :] < K), other=0)
        # -:6
        v = (x.to(tl.float32) * x_2).to(tl.bfloat16)
        left = tl.where((k[None, :] < K), v, 0.0).to(tl.bfloat16)
        at_2 = k[:, None] * 777 + n[None, :]
        x_3 = tl.load(x_3_ptr + at_2, mask=(n[None, :] < N) & (k[:, None] < K), other=0)
        total = tl.dot(left, x_3, total)
    return total


@triton.jit
def scaled_matmul_finish(total, out_ptr, m, n):
    """What is made of one tile of the product."""
    # -:25
    v = total.to(tl.bfloat16)
    at = m[:, None] * 777 + n[None, :]
    tl.store(out_ptr + at, v, mask=(n[None, :] < N) & (m[:, None] < M))


@triton.jit
def scaled_matmul(
    x_ptr, x_2_ptr, x_3_ptr, out_ptr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):
    """A program: one tile of the product."""
    row, column = scaled_matmul_place(tl.program_id(0), BLOCK_M, BLOCK_N, GROUP)
    first_m, first_n = row * BLOCK_M, column * BLOCK_N
    m = first_m + tl.arange(0, BLOCK_M)
    n = first_n + tl.arange(0, BLOCK_N)
    total = scaled_matmul_sum(x_ptr, x_2_ptr, x_3_ptr, m, n, 0, K, BLOCK_M, BLOCK_N, BLOCK_K)
    scaled_matmul_finish(total, out_ptr, m, n)


def launch(x, x_2, x_3, out):
    """Starts the kernel: contiguous tensors, results last, then sizes."""
    scaled_matmul[(triton.cdiv(1000, BLOCK_M) * triton.cdiv(777, BLOCK_N),)](x, x_2, x_3, out, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP=GROUP, num_warps=4, num_stages=3)
