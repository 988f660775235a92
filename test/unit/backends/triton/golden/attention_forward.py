"""forward."""

import triton
import triton.language as tl


BLOCK_M = 128
BLOCK_N = 64
BLOCK_D = 64
BLOCK_E = 64


INPUTS = 3
OUTPUTS = 2
SIZES = 0
# of launch's parameters


BATCH = tl.constexpr(2)
HEADS = tl.constexpr(8)
QUERIES = tl.constexpr(1024)
KEYS = tl.constexpr(1024)
SIZE = tl.constexpr(64)  # of a query and a key
VALUE_SIZE = tl.constexpr(64)  # of a value
LOG2E = tl.constexpr(1.4426950408889634)
SCALE = tl.constexpr(0.125)  # of scores
GROUP = tl.constexpr(4)  # query heads that share a head of keys
OFFSET = tl.constexpr(0)  # query m sees the keys up to m + OFFSET


@triton.jit
def forward_keys(
    query, k, v, m, start, best, total, result,
    EDGE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """One block of keys. EDGE: queries may not see some of them, or there may be fewer."""
    n = start + tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    e = tl.arange(0, BLOCK_E)
    if EDGE:
        key = tl.load(k + n[None, :] * 128 + d[:, None], mask=n[None, :] < KEYS, other=0.0)
        value = tl.load(v + n[:, None] * 128 + e[None, :], mask=n[:, None] < KEYS, other=0.0)
    else:
        key = tl.load(k + n[None, :] * 128 + d[:, None])
        value = tl.load(v + n[:, None] * 128 + e[None, :])
    score = tl.dot(query, key) * (SCALE * LOG2E)
    if EDGE:
        score = tl.where((n[None, :] < KEYS) & (n[None, :] <= m[:, None] + OFFSET), score, float("-inf"))
    best_now = tl.maximum(best, tl.max(score, 1))
    weight = tl.exp2(score - best_now[:, None])
    decay = tl.exp2(best - best_now)
    total = total * decay + tl.sum(weight, 1)
    result = tl.dot(weight.to(tl.bfloat16), value, result * decay[:, None])
    return best_now, total, result


@triton.jit
def forward(
    q, k, v, out, lse, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):
    """A program: BLOCK_M queries of one head, past which the keys that they see go by in blocks of BLOCK_N."""
    blocks = tl.cdiv(QUERIES, BLOCK_M)
    block = blocks - 1 - tl.program_id(0) % blocks  # causal: the longest rows start first
    batch = tl.program_id(0) // blocks // HEADS
    head = tl.program_id(0) // blocks % HEADS
    m = block * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    e = tl.arange(0, BLOCK_E)
    q = q + batch * 524288 + head * 64
    k = k + batch * 131072 + (head // GROUP) * 64
    v = v + batch * 131072 + (head // GROUP) * 64
    out = out + batch * 524288 + head * 64
    lse = lse + batch * 8192 + head
    query = tl.load(q + m[:, None] * 512 + d[None, :], mask=m[:, None] < QUERIES, other=0.0)
    best = tl.full([BLOCK_M], float("-inf"), tl.float32)  # of each query's scores so far
    total = tl.zeros([BLOCK_M], tl.float32)  # of 2 ** (score - best)
    result = tl.zeros([BLOCK_M, BLOCK_E], tl.float32)
    first = block * BLOCK_M + OFFSET  # the last key that the first query sees
    whole = tl.minimum(tl.maximum(first + 1, 0), KEYS) // BLOCK_N * BLOCK_N
    last = tl.minimum(tl.maximum(first + BLOCK_M, 0), KEYS)
    for start in tl.range(0, whole, BLOCK_N):
        best, total, result = forward_keys(
            query, k, v, m, start, best, total, result, False, BLOCK_N, BLOCK_D, BLOCK_E
        )
    for start in tl.range(whole, last, BLOCK_N):
        best, total, result = forward_keys(
            query, k, v, m, start, best, total, result, True, BLOCK_N, BLOCK_D, BLOCK_E
        )
    lse_row = (best + tl.log2(total)) / LOG2E
    tl.store(out + m[:, None] * 512 + e[None, :], (result / total[:, None]).to(tl.bfloat16), mask=m[:, None] < QUERIES)
    tl.store(lse + m * 8, lse_row, mask=m < QUERIES)


def launch(q, k, v, out, lse):
    """Starts the kernel: contiguous tensors, results last, then sizes."""
    forward[(triton.cdiv(1024, BLOCK_M) * 16,)](q, k, v, out, lse, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_D=BLOCK_D, BLOCK_E=BLOCK_E, num_warps=8, num_stages=3)
