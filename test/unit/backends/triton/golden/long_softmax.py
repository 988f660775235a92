"""softmax_0: _softmax."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


BLOCK_ROWS = 1
BLOCK_COLUMNS = 8192


INPUTS = 1
OUTPUTS = 1
SIZES = 0
# of launch's parameters


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def softmax_0(arg0_ptr, out_ptr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """64 rows of 50304."""
    row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    max_acc = tl.full([BLOCK_ROWS, BLOCK_COLUMNS], float("-inf"), tl.float32)
    for start in range(0, 50304, BLOCK_COLUMNS):
        column = start + tl.arange(0, BLOCK_COLUMNS)[None, :]
        column_mask = column < 50304
        at = row * 50304 + column
        arg0 = tl.load(arg0_ptr + at, mask=column_mask, other=0)
        term = tl.where(column_mask, arg0, float("-inf"))
        max_acc = _maximum(max_acc, term)
    max_2 = tl.reduce(max_acc, 1, _maximum, keep_dims=True)
    sum_acc = tl.full([BLOCK_ROWS, BLOCK_COLUMNS], 0.0, tl.float32)
    for start_2 in range(0, 50304, BLOCK_COLUMNS):
        column_2 = start_2 + tl.arange(0, BLOCK_COLUMNS)[None, :]
        column_mask_2 = column_2 < 50304
        at_2 = row * 50304 + column_2
        arg0_2 = tl.load(arg0_ptr + at_2, mask=column_mask_2, other=0)
        v = libdevice.exp(arg0_2 - max_2)
        term_2 = tl.where(column_mask_2, v, 0.0)
        sum_acc = sum_acc + term_2
    sum_2 = tl.sum(sum_acc, 1, keep_dims=True)
    v_3 = tl.div_rn(tl.full([], 1.0, tl.float32), sum_2)
    for start_3 in range(0, 50304, BLOCK_COLUMNS):
        column_3 = start_3 + tl.arange(0, BLOCK_COLUMNS)[None, :]
        column_mask_3 = column_3 < 50304
        at_3 = row * 50304 + column_3
        arg0_3 = tl.load(arg0_ptr + at_3, mask=column_mask_3, other=0)
        v_2 = libdevice.exp(arg0_3 - max_2)
        v_4 = v_2 * v_3
        tl.store(out_ptr + at_3, v_4, mask=column_mask_3)


def launch(arg0, out):
    """Starts the kernel: contiguous tensors, results last, then sizes."""
    softmax_0[(triton.cdiv(64, BLOCK_ROWS),)](arg0, out, BLOCK_ROWS=BLOCK_ROWS, BLOCK_COLUMNS=BLOCK_COLUMNS, num_warps=16, num_stages=2)
