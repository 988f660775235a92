"""lerp_mul_add_0: lerp, mul, add, sqrt, div, sub."""

import triton
import triton.language as tl


BLOCK = 1024
INPUTS = 4
OUTPUTS = 3


@triton.jit
def _each(arg2_ptr, arg1_ptr, arg3_ptr, arg0_ptr, out_ptr, out_2_ptr, out_3_ptr, elements, program, BLOCK: tl.constexpr):
    """BLOCK elements of each tensor."""
    index = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    index_mask = index < elements
    arg2 = tl.load(arg2_ptr + index, mask=index_mask, other=0)
    arg1 = tl.load(arg1_ptr + index, mask=index_mask, other=0)
    t = arg2 + ((arg1 - arg2) * 0.1)
    arg3 = tl.load(arg3_ptr + index, mask=index_mask, other=0)
    t_2 = (arg3 * 0.999) + ((arg1 * arg1) * 0.001)
    arg0 = tl.load(arg0_ptr + index, mask=index_mask, other=0)
    t_3 = arg2 + ((arg1 - arg2) * 0.1)
    t_4 = (arg3 * 0.999) + ((arg1 * arg1) * 0.001)
    t_5 = arg0 - tl.div_rn(t_3 * 0.001, tl.sqrt_rn(t_4) + 1e-08)
    tl.store(out_ptr + index, t, mask=index_mask)
    tl.store(out_2_ptr + index, t_2, mask=index_mask)
    tl.store(out_3_ptr + index, t_5, mask=index_mask)


@triton.jit
def lerp_mul_add_0(arg2_ptr, arg1_ptr, arg3_ptr, arg0_ptr, out_ptr, out_2_ptr, out_3_ptr, elements, BLOCK: tl.constexpr):
    """All elements of one tuple of tensors."""
    _each(arg2_ptr, arg1_ptr, arg3_ptr, arg0_ptr, out_ptr, out_2_ptr, out_3_ptr, elements, tl.program_id(0), BLOCK)


@triton.jit
def lerp_mul_add_0_all(table_ptr, owner_ptr, BLOCK: tl.constexpr, ALIGNED: tl.constexpr):
    """All elements of the tensors in every row of a table. ALIGNED: addresses and numbers of elements are multiples of 16."""
    row_ptr = table_ptr + tl.load(owner_ptr + tl.program_id(0)) * 9
    first = tl.load(row_ptr)
    elements = tl.load(row_ptr + 1)
    arg2_ptr = tl.load(row_ptr + 2).to(tl.pointer_type(tl.float32))
    arg1_ptr = tl.load(row_ptr + 3).to(tl.pointer_type(tl.float32))
    arg3_ptr = tl.load(row_ptr + 4).to(tl.pointer_type(tl.float32))
    arg0_ptr = tl.load(row_ptr + 5).to(tl.pointer_type(tl.float32))
    out_ptr = tl.load(row_ptr + 6).to(tl.pointer_type(tl.float32))
    out_2_ptr = tl.load(row_ptr + 7).to(tl.pointer_type(tl.float32))
    out_3_ptr = tl.load(row_ptr + 8).to(tl.pointer_type(tl.float32))
    if ALIGNED:
        elements = tl.multiple_of(elements, 16)
        arg2_ptr = tl.multiple_of(arg2_ptr, 16)
        arg1_ptr = tl.multiple_of(arg1_ptr, 16)
        arg3_ptr = tl.multiple_of(arg3_ptr, 16)
        arg0_ptr = tl.multiple_of(arg0_ptr, 16)
        out_ptr = tl.multiple_of(out_ptr, 16)
        out_2_ptr = tl.multiple_of(out_2_ptr, 16)
        out_3_ptr = tl.multiple_of(out_3_ptr, 16)
    _each(arg2_ptr, arg1_ptr, arg3_ptr, arg0_ptr, out_ptr, out_2_ptr, out_3_ptr, elements, tl.program_id(0) - first, BLOCK)


def launch(arg2, arg1, arg3, arg0, out, out_2, out_3, elements):
    """Starts the kernel for one tuple of contiguous tensors, results last, of so many elements."""
    lerp_mul_add_0[(triton.cdiv(elements, BLOCK),)](arg2, arg1, arg3, arg0, out, out_2, out_3, elements, BLOCK=BLOCK, num_warps=8, num_stages=2)


def launch_all(table, owner, aligned):
    """Starts the kernel for every row of the table, with a program for each entry of owner."""
    lerp_mul_add_0_all[(owner.numel(),)](table, owner, BLOCK=BLOCK, ALIGNED=aligned, num_warps=8, num_stages=2)
