"""embedding_dense_backward_0: embedding_dense_backward."""

import torch
import triton
import triton.language as tl


BLOCK_0 = 1024


RUN_1 = 32
COLUMNS_1 = 128


RUN_2 = 32
COLUMNS_2 = 128


INPUTS = 2
OUTPUTS = 1
SIZES = 0
# of launch's parameters


COUNT = tl.constexpr(8192)
ROWS = tl.constexpr(50257)
INNER = tl.constexpr(768)


@triton.jit
def add_within(total, begins, term, begins_here):
    """Joins two spans of positions: the sum begins anew where a row begins."""
    return tl.where(begins_here != 0, term, total + term), begins | begins_here


@triton.jit
def embedding_dense_backward_0_rows(index_ptr, rows_ptr, BLOCK: tl.constexpr):
    """The row that each index names; ROWS where it adds nothing."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at, mask=at < COUNT, other=0)
    row = index
    is_row = (row >= 0) & (row < ROWS)
    row = tl.where(is_row, row, ROWS).to(tl.int32)
    tl.store(rows_ptr + at, row, mask=at < COUNT)


@triton.jit
def embedding_dense_backward_0(
    updates_ptr, out_ptr, sorted_rows_ptr, order_ptr, parts_ptr, RUN: tl.constexpr, COLUMNS: tl.constexpr,
):
    """A program: RUN positions in the order of their rows, and COLUMNS columns."""
    blocks = tl.cdiv(INNER, COLUMNS)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    run = tl.program_id(0) // blocks
    stride = INNER
    first = run * RUN
    at = first + tl.arange(0, RUN)
    row = tl.load(sorted_rows_ptr + at, mask=at < COUNT, other=ROWS)
    before = tl.load(sorted_rows_ptr + at - 1, mask=(at > 0) & (at < COUNT), other=-1)
    after = tl.load(sorted_rows_ptr + at + 1, mask=at + 1 < COUNT, other=-1)
    row_before = tl.load(sorted_rows_ptr + first - 1, mask=first > 0, other=-1)
    position = tl.load(order_ptr + at, mask=at < COUNT, other=0)
    is_used = (row < ROWS)[:, None] & (column < INNER)[None, :]
    update = position[:, None] * INNER + column[None, :]
    term = tl.load(updates_ptr + update, mask=is_used, other=0).to(tl.float32)
    begins = tl.broadcast_to((row != before)[:, None].to(tl.int32), [RUN, COLUMNS])
    total, _ = tl.associative_scan((term, begins), 0, add_within)
    # Rows that begin and end in this run
    ends, is_whole = row != after, row != row_before
    inside = is_used & (ends & is_whole)[:, None]
    into = out_ptr + row[:, None].to(tl.int64) * INNER + column[None, :]
    tl.store(into, total.to(tl.bfloat16), mask=inside)
    # The end of one that began before, and the beginning of one that goes on
    is_end = (ends | (at == first + RUN - 1)) & (is_whole == 0)
    is_begin = (at == first + RUN - 1) & (ends == 0) & is_whole
    part = parts_ptr + (2 * run + is_begin.to(tl.int64)[:, None]) * stride + column[None, :]
    tl.store(part, total, mask=is_used & (is_end | is_begin)[:, None])


@triton.jit
def embedding_dense_backward_0_join(
    out_ptr, sorted_rows_ptr, parts_ptr, RUN: tl.constexpr, COLUMNS: tl.constexpr,
):
    """A program: the row that begins in one run and goes on in the next ones, added up in order."""
    blocks = tl.cdiv(INNER, COLUMNS)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    run = tl.program_id(0) // blocks
    stride = INNER
    row_before = tl.load(sorted_rows_ptr + run * RUN - 1, mask=run > 0, other=-1)
    last = run * RUN + RUN - 1
    row = tl.load(sorted_rows_ptr + last, mask=last < COUNT, other=ROWS)
    after = tl.load(sorted_rows_ptr + last + 1, mask=last + 1 < COUNT, other=ROWS)
    goes_on = (row == after) & (row != row_before) & (row < ROWS)
    inside = (column < INNER) & goes_on
    part = parts_ptr + column
    total = tl.load(part + (2 * run + 1).to(tl.int64) * stride, mask=inside, other=0)
    later = run + 1
    while goes_on & (tl.load(sorted_rows_ptr + later * RUN, mask=later * RUN < COUNT, other=ROWS) == row):
        total += tl.load(part + (2 * later).to(tl.int64) * stride, mask=inside, other=0)
        later += 1
    into = out_ptr + row.to(tl.int64) * INNER + column
    tl.store(into, total.to(tl.bfloat16), mask=inside)


def launch(index, updates, out):
    """Starts the kernel: contiguous tensors, results last, then sizes."""
    rows = torch.empty((8192,), dtype=torch.int32, device=index.device)
    sorted_rows = torch.empty((8192,), dtype=torch.int32, device=index.device)
    order = torch.empty((8192,), dtype=torch.int64, device=index.device)
    parts = torch.empty((393216,), dtype=torch.float32, device=index.device)
    out.zero_()
    embedding_dense_backward_0_rows[(triton.cdiv(8192, BLOCK_0),)](index, rows, BLOCK=BLOCK_0, num_warps=4, num_stages=2)
    torch.sort(rows, stable=True, out=(sorted_rows, order))
    embedding_dense_backward_0[(triton.cdiv(8192, RUN_1) * triton.cdiv(768, COLUMNS_1),)](updates, out, sorted_rows, order, parts, RUN=RUN_1, COLUMNS=COLUMNS_1, num_warps=8, num_stages=2)
    embedding_dense_backward_0_join[(triton.cdiv(8192, RUN_2) * triton.cdiv(768, COLUMNS_2),)](out, sorted_rows, parts, RUN=RUN_2, COLUMNS=COLUMNS_2, num_warps=1, num_stages=2)
