"""mul_sub_cat_0: mul, sub, cat."""

import triton
import triton.language as tl


BLOCK = 1024


INPUTS = 2
OUTPUTS = 1
SIZES = 0
# of launch's parameters


@triton.jit
def mul_sub_cat_0(arg0_ptr, slice_ptr, out_ptr, BLOCK: tl.constexpr):
    """8 x 48000 elements."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index_1 = index % 48000
    index_0 = index // 48000
    t = index_1.to(tl.int64)
    t_2 = t - 1
    t_3 = (t_2 < 0) | (t_2 >= 47999)
    slice = tl.load(slice_ptr + index_0)
    picked = tl.where(t_3, 0, t_2).to(tl.int32)
    at = index_0 * 48000 + picked + 1
    arg0 = tl.load(arg0_ptr + at)
    at_2 = index_0 * 48000 + picked
    arg0_2 = tl.load(arg0_ptr + at_2)
    v = arg0 - (arg0_2 * 0.97)
    chosen = tl.where(t_3, tl.where((t < 0) | (t >= 1), 0.0, slice), v)
    v_2 = chosen * 2.0
    at_3 = index_0 * 48000 + index_1
    tl.store(out_ptr + at_3, v_2)


def launch(arg0, slice, out):
    """Starts the kernel: contiguous tensors, results last, then sizes."""
    mul_sub_cat_0[(triton.cdiv(384000, BLOCK),)](arg0, slice, out, BLOCK=BLOCK, num_warps=8, num_stages=2)
