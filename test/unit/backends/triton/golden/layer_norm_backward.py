"""native_layer_norm_backward_0: native_layer_norm_backward."""

import torch
import triton
import triton.language as tl


BLOCK_ROWS_0 = 8
BLOCK_COLUMNS_0 = 512
PROGRAMS_0 = 256


BLOCK_1 = 32
BLOCK_PARTS_1 = 256
PARTS_1 = 256


INPUTS = 5
OUTPUTS = 3
SIZES = 0
# of launch's parameters


@triton.jit
def native_layer_norm_backward_0(
    arg1_ptr, arg2_ptr, arg3_ptr, arg0_ptr, arg4_ptr, out_ptr, sum_parts_ptr, sum_parts_2_ptr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr,
):
    """Sums over 4096 rows of 512: each program takes a share of them."""
    column = tl.arange(0, BLOCK_COLUMNS)[None, :]
    sum_acc = tl.full([BLOCK_ROWS, BLOCK_COLUMNS], 0.0, tl.float32)
    sum_acc_2 = tl.full([BLOCK_ROWS, BLOCK_COLUMNS], 0.0, tl.float32)
    arg4 = tl.load(arg4_ptr + column)
    for block in range(tl.program_id(0), tl.cdiv(4096, BLOCK_ROWS), PROGRAMS):
        row = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
        at = row * 512 + column
        arg0 = tl.load(arg0_ptr + at)
        arg1 = tl.load(arg1_ptr + at)
        arg2 = tl.load(arg2_ptr + row)
        arg3 = tl.load(arg3_ptr + row)
        sum_acc = sum_acc + (arg0 * ((arg1 - arg2) * arg3))
        sum_acc_2 = sum_acc_2 + arg0
        t = arg0 * arg4
        sum_2 = tl.sum(t, 1, keep_dims=True)
        t_2 = arg0 * arg4
        sum_3 = tl.sum(t_2 * ((arg1 - arg2) * arg3), 1, keep_dims=True)
        t_3 = (sum_2 + (((arg1 - arg2) * arg3) * sum_3)) * 0.001953125
        v = ((arg0 * arg4) - t_3) * arg3
        tl.store(out_ptr + at, v)
    sum_4 = tl.sum(sum_acc, 0, keep_dims=True)
    tl.store(sum_parts_ptr + tl.program_id(0) * (512) + column, sum_4)
    sum_5 = tl.sum(sum_acc_2, 0, keep_dims=True)
    tl.store(sum_parts_2_ptr + tl.program_id(0) * (512) + column, sum_5)


@triton.jit
def native_layer_norm_backward_0_join(
    out_2_ptr, out_3_ptr, sum_parts_ptr, sum_parts_2_ptr, BLOCK: tl.constexpr, BLOCK_PARTS: tl.constexpr, PARTS: tl.constexpr,
):
    """Joins the parts of each program."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    part = tl.arange(0, BLOCK_PARTS)[None, :]
    inside = (column < 512) & (part < PARTS)
    parts = tl.load(sum_parts_ptr + part * 512 + column, mask=inside, other=0.0)
    sum_2 = tl.sum(parts, 1, keep_dims=True)
    tl.store(out_2_ptr + column, sum_2, mask=column < 512)
    parts_2 = tl.load(sum_parts_2_ptr + part * 512 + column, mask=inside, other=0.0)
    sum_3 = tl.sum(parts_2, 1, keep_dims=True)
    tl.store(out_3_ptr + column, sum_3, mask=column < 512)


def launch(arg1, arg2, arg3, arg0, arg4, out, out_2, out_3):
    """Starts the kernel: contiguous tensors, results last, then sizes."""
    sum_parts = torch.empty((PROGRAMS_0, 512,), dtype=torch.float32, device=arg1.device)
    sum_parts_2 = torch.empty((PROGRAMS_0, 512,), dtype=torch.float32, device=arg1.device)
    native_layer_norm_backward_0[(PROGRAMS_0,)](arg1, arg2, arg3, arg0, arg4, out, sum_parts, sum_parts_2, BLOCK_ROWS=BLOCK_ROWS_0, BLOCK_COLUMNS=BLOCK_COLUMNS_0, PROGRAMS=PROGRAMS_0, num_warps=8, num_stages=2)
    native_layer_norm_backward_0_join[(triton.cdiv(512, BLOCK_1),)](out_2, out_3, sum_parts, sum_parts_2, BLOCK=BLOCK_1, BLOCK_PARTS=BLOCK_PARTS_1, PARTS=PARTS_1, num_warps=8, num_stages=2)
