"""add_gelu_0: add, gelu."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


BLOCK = 128


INPUTS = 2
OUTPUTS = 1
SIZES = 0
# of launch's parameters


@triton.jit
def add_gelu_0(arg0_ptr, arg1_ptr, out_ptr, BLOCK: tl.constexpr):
    """100 x 300 elements."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index_mask = index < 30000
    index_1 = index % 300
    index_0 = index // 300
    at = index_0 * 300 + index_1
    arg0 = tl.load(arg0_ptr + at, mask=index_mask, other=0)
    arg1 = tl.load(arg1_ptr + index_1, mask=index_mask, other=0)
    t = arg0 + arg1
    t_2 = (t * 0.5) * (libdevice.erf(t * 0.70710677) + 1.0)
    tl.store(out_ptr + at, t_2, mask=index_mask)


def launch(arg0, arg1, out):
    """Starts the kernel: contiguous tensors, results last, then sizes."""
    add_gelu_0[(triton.cdiv(30000, BLOCK),)](arg0, arg1, out, BLOCK=BLOCK, num_warps=1, num_stages=2)
