"""Triton module of ``kern.attention_backward``: three kernels with deterministic sums.

``name_delta`` sums grad_out * out of each query. A program of ``name_dkdv`` takes a block of keys and loops
over the queries of its group. A program of ``name_dq`` takes a block of queries and loops over keys.
"""

from __future__ import annotations

from shardc.backends.triton.attention.forward import block_of_queries, hidden, key_loops, key_range, masked
from shardc.backends.triton.attention.ranges import entry
from shardc.backends.triton.attention.shared import Writer, indented

_BLOCKS = "BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,"


def delta(w: Writer) -> list[str]:
    """Return the body of ``name_delta``: ``delta[batch, head, query]`` is the sum of grad_out * out."""
    return [
        *block_of_queries(w)[:-2],
        "e = tl.arange(0, BLOCK_E)",
        *w.to_head("grad_out", "out"),
        f"grad = {w.load('grad_out', True)}.to(tl.float32)",
        f"result = {w.load('out', True)}.to(tl.float32)",
        f"tl.store({w.delta()} + m, tl.sum(grad * result, 1), mask=m < QUERIES)",
    ]


def _row(w: Writer) -> list[str]:
    """Return the lines that load ``top``, a query's lse in powers of 2, and ``part``, its delta."""
    lines = [f"top = {w.load_row(w.at('lse'))} * LOG2E", f"part = {w.load_row('delta + m')}"]
    if w.hides_rows:
        lines.insert(1, 'top = tl.where(top == float("-inf"), 0.0, top)  # a query that sees nothing')
    return lines


def dkdv_rows(w: Writer) -> str:
    """Return the function ``name_dkdv_rows``: the step of one block of queries."""
    causal = ["if EDGE:", '    score = tl.where(n[:, None] <= m[None, :] + OFFSET, score, float("-inf"))']
    body = [
        *w.sizes(),
        "m = start + tl.arange(0, BLOCK_M)",
        "d = tl.arange(0, BLOCK_D)",
        "e = tl.arange(0, BLOCK_E)",
        f"query = {w.load('q', True)}",
        f"grad = {w.load('grad_out', True)}",
        *_row(w),
        f"score = tl.dot(key, tl.trans(query){w.precision}) * (SCALE * LOG2E)  # [keys, queries]",
        *w.masked(True, "m[None, :]", "n[:, None]"),
        *causal * w.spec.causal,
        "weight = tl.exp2(score - top[None, :])",
        f"dv_block = tl.dot({w.cast('weight')}, grad, dv_block{w.precision})",
        f"slope = weight * (tl.dot(value, tl.trans(grad){w.precision}) - part[None, :])",
        f"dk_block = tl.dot({w.cast('slope')}, query, dk_block{w.precision})",
        "return dk_block, dv_block",
    ]
    return f'''@triton.jit
def {w.name}_dkdv_rows(
    key, value, q, grad_out, lse, delta, {w.mask}n, start, dk_block, dv_block,{w.more}
    EDGE: tl.constexpr, {_BLOCKS}
):  # fmt: skip
    """What a block of queries adds to dk and dv. EDGE: some of them may not see some of the keys.

    Queries beyond the last have a grad_out of 0 and add nothing.
    """
{indented(body)}'''


def dkdv(w: Writer) -> list[str]:
    """Return the body of ``name_dkdv``: dk and dv of a block of keys, from the queries that see them."""

    def call(edge: bool) -> list[str]:
        return [
            f"        dk_block, dv_block = {w.name}_dkdv_rows(",
            f"            key, value, q_head, grad_head, lse_head, delta_head, {w.mask and 'mask_head, '}n, "
            f"start,",
            f"            dk_block, dv_block, {w.parameters}{edge}, BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_E,",
            "        )  # fmt: skip",
        ]

    first = ["low = 0", "whole = 0"]
    if w.spec.causal:
        first = [
            "low = tl.maximum(block * BLOCK_N - OFFSET, 0) // BLOCK_M * BLOCK_M  # the first that see some "
            "of the keys",
            "whole = tl.minimum(tl.maximum(tl.cdiv((block + 1) * BLOCK_N - 1 - OFFSET, BLOCK_M) * BLOCK_M, "
            "0), rows)",
        ]
    shown, low, middle, begin, end = [], "low", "whole", "whole", "rows"
    if w.ranges:
        shown = [
            f"top = tl.load({entry(w, 'n')}) // BLOCK_M * BLOCK_M  # of the queries that the mask shows",
            f"bottom = tl.load({entry(w, 'n')} + 1)",
        ]
        low, middle = "tl.maximum(low, top)", "tl.minimum(whole, bottom)"
        begin, end = "tl.maximum(whole, top)", "tl.minimum(rows, bottom)"
    pointers = [("q_head", "q"), ("grad_head", "grad_out"), ("lse_head", "lse")]
    pointers += [("mask_head", "mask")] * w.has("mask")
    loops = [
        *(f"    {name} = {w.head(role)}" for name, role in pointers),
        f"    delta_head = {w.delta()}",
        *(f"    {line}" for line in shown),
        *([f"    for start in tl.range({low}, {middle}, BLOCK_M):", *call(True)] if w.spec.causal else []),
        f"    for start in tl.range({begin}, {end}, BLOCK_M):",
        *call(False),
    ]
    group = "GROUP" if w.spec.group > 1 else "1"
    return [
        *w.sizes(),
        "blocks = tl.cdiv(KEYS, BLOCK_N)",
        f"kv_heads = {'HEADS // GROUP' if w.spec.group > 1 else 'HEADS'}",
        "block = tl.program_id(0) % blocks",
        "batch = tl.program_id(0) // blocks // kv_heads",
        "kv_head = tl.program_id(0) // blocks % kv_heads",
        "n = block * BLOCK_N + tl.arange(0, BLOCK_N)",
        "d = tl.arange(0, BLOCK_D)",
        "e = tl.arange(0, BLOCK_E)",
        *(f"{role} = {w.head(role, 'kv_head')}" for role in ("k", "v", "dk", "dv")),
        f"key = {w.load('k', True)}",
        f"value = {w.load('v', True)}",
        "dk_block = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)",
        "dv_block = tl.zeros([BLOCK_N, BLOCK_E], tl.float32)",
        "rows = tl.cdiv(QUERIES, BLOCK_M) * BLOCK_M",
        *first,
        f"for head in range(kv_head * {group}, kv_head * {group} + {group}):",
        *loops,
        w.store("dk", w.cast("dk_block * SCALE")),
        w.store("dv", w.cast("dv_block")),
    ]


def dq_keys(w: Writer) -> str:
    """Return the function ``name_dq_keys``: the step of one block of keys."""
    body = [
        *w.sizes(),
        "n = start + tl.arange(0, BLOCK_N)",
        "d = tl.arange(0, BLOCK_D)",
        "e = tl.arange(0, BLOCK_E)",
        "if EDGE:",
        f"    key = {w.load('k', True)}",
        f"    value = {w.load('v', True)}",
        "else:",
        f"    key = {w.load('k', False)}",
        f"    value = {w.load('v', False)}",
        f"score = tl.dot(query, tl.trans(key){w.precision}) * (SCALE * LOG2E)",
        *masked(w),
        *hidden(w),
        "weight = tl.exp2(score - top[:, None])",
        f"slope = weight * (tl.dot(grad, tl.trans(value){w.precision}) - part[:, None])",
        f"return tl.dot({w.cast('slope')}, key, dq_block{w.precision})",
    ]
    return f'''@triton.jit
def {w.name}_dq_keys(
    query, grad, top, part, k, v, {w.mask}m, start, dq_block,{w.more}
    EDGE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """What a block of keys adds to dq. EDGE: queries may not see some of them, or there may be fewer."""
{indented(body)}'''


def dq(w: Writer) -> list[str]:
    """Return the body of ``name_dq``: dq of a block of queries, from the keys that they see."""

    def call(edge: bool) -> str:
        given = f"query, grad, top, part, k, v, {w.mask}m, start, dq_block, {w.parameters}{edge}"
        return f"    dq_block = {w.name}_dq_keys({given}, BLOCK_N, BLOCK_D, BLOCK_E)"

    return [
        *block_of_queries(w),
        *w.to_head("q", "k", "v", "grad_out", "lse", "mask", "dq"),
        f"delta = {w.delta()}",
        f"query = {w.load('q', True)}",
        f"grad = {w.load('grad_out', True)}",
        *_row(w),
        "dq_block = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)",
        *key_range(w),
        *key_loops(w, [call(False)], [call(True)]),
        w.store("dq", w.cast("dq_block * SCALE")),
    ]
