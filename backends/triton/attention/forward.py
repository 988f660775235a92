"""Triton module of ``kern.attention``: online softmax (Dao et al., FlashAttention-2, 2023)."""

from __future__ import annotations

from math import isinf

from shardc.backends.triton.attention.ranges import entry
from shardc.backends.triton.attention.shared import Writer, indented, joined


def step(w: Writer) -> str:
    """Return the function ``name_keys``: the step of one block of keys."""
    return f'''@triton.jit
def {w.name}_keys(
    query, k, v, {w.mask}m, start, best, total, result,{w.more}
    EDGE: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """One block of keys. EDGE: queries may not see some of them{", or" if w.spec.causal else ","} there may be fewer."""
{indented(_keys_body(w))}'''  # noqa: E501


def _keys_body(w: Writer) -> list[str]:
    guard = "best_now"
    lines = [
        *w.sizes(),
        "n = start + tl.arange(0, BLOCK_N)",
        "d = tl.arange(0, BLOCK_D)",
        "e = tl.arange(0, BLOCK_E)",
        "if EDGE:",
        f"    key = {w.load('k', True, across=True)}",
        f"    value = {w.load('v', True)}",
        "else:",
        f"    key = {w.load('k', False, across=True)}",
        f"    value = {w.load('v', False)}",
        f"score = tl.dot(query, key{w.precision}) * (SCALE * LOG2E)",
        *masked(w),
        *hidden(w),
        "best_now = tl.maximum(best, tl.max(score, 1))",
    ]
    if w.hides_rows:
        lines += ['shift = tl.where(best_now == float("-inf"), 0.0, best_now)  # nothing was seen so far']
        guard = "shift"
    return [
        *lines,
        f"weight = tl.exp2(score - {guard}[:, None])",
        f"decay = tl.exp2(best - {guard})",
        "total = total * decay + tl.sum(weight, 1)",
        f"result = tl.dot({w.cast('weight')}, value, result * decay[:, None]{w.precision})",
        "return best_now, total, result",
    ]


def masked(w: Writer) -> list[str]:
    """Return the lines that apply the mask to a block of scores."""
    edge, inner = w.masked(True), w.masked(False)
    if edge == inner:
        return edge
    return ["if EDGE:", *("    " + line for line in edge), "else:", *("    " + line for line in inner)]


def hidden(w: Writer) -> list[str]:
    """Return the lines that hide scores of keys beyond the last, and of those that causality hides."""
    seen = ["n[None, :] < KEYS"] + ["n[None, :] <= m[:, None] + OFFSET"] * w.spec.causal
    return ["if EDGE:", f'    score = tl.where({joined(seen)}, score, float("-inf"))']


def key_range(w: Writer) -> list[str]:
    """Return the lines that set ``whole``, the end of the keys that all queries see, and ``last``, of those
    that any query sees. If ranges of the mask are known, keys start at ``low``.
    """
    if not w.ranges:
        return _causal_range(w)
    return [
        *_causal_range(w),
        f"low = tl.load({entry(w, 'm')}) // BLOCK_N * BLOCK_N  # of what the mask shows",
        f"high = tl.load({entry(w, 'm')} + 1)",
        *["whole = tl.minimum(whole, high // BLOCK_N * BLOCK_N)"] * (not w.loops_once),
        "last = tl.minimum(last, high)",
    ]


def key_loops(w: Writer, whole: list[str], edge: list[str]) -> list[str]:
    """Return the loops over those keys, each with the lines of a step."""
    if w.loops_once:
        return [f"for start in tl.range({'low' if w.ranges else '0'}, last, BLOCK_N):", *edge]
    first, second = ("low", "tl.maximum(low, whole)") if w.ranges else ("0", "whole")
    return [
        f"for start in tl.range({first}, whole, BLOCK_N):",
        *whole,
        f"for start in tl.range({second}, last, BLOCK_N):",
        *edge,
    ]


def _causal_range(w: Writer) -> list[str]:
    own_loop = not w.loops_once
    if not w.spec.causal:
        return [*["whole = KEYS // BLOCK_N * BLOCK_N"] * own_loop, "last = KEYS"]
    return [
        "first = block * BLOCK_M + OFFSET  # the last key that the first query sees",
        *["whole = tl.minimum(tl.maximum(first + 1, 0), KEYS) // BLOCK_N * BLOCK_N"] * own_loop,
        "last = tl.minimum(tl.maximum(first + BLOCK_M, 0), KEYS)",
    ]


def block_of_queries(w: Writer) -> list[str]:
    """Return the lines that compute a program's block of queries and its head."""
    latest = "blocks - 1 - tl.program_id(0) % blocks  # causal: the longest rows start first"
    return [
        *w.sizes(),
        "blocks = tl.cdiv(QUERIES, BLOCK_M)",
        f"block = {latest if w.spec.causal else 'tl.program_id(0) % blocks'}",
        "batch = tl.program_id(0) // blocks // HEADS",
        "head = tl.program_id(0) // blocks % HEADS",
        "m = block * BLOCK_M + tl.arange(0, BLOCK_M)",
        "d = tl.arange(0, BLOCK_D)",
        "e = tl.arange(0, BLOCK_E)",
    ]


def main(w: Writer) -> list[str]:
    """Return the body of the function ``name``: BLOCK_M queries of one head loop over the keys they see."""

    def call(edge: bool) -> list[str]:
        return [
            f"    best, total, result = {w.name}_keys(",
            f"        query, k, v, {w.mask}m, start, best, total, result, {w.parameters}{edge}, BLOCK_N, "
            f"BLOCK_D, BLOCK_E",
            "    )",
        ]

    unseen = w.spec.unseen_lse
    empty = f'float("{unseen!r}")' if isinf(unseen) else repr(unseen)
    finish = ["lse_row = (best + tl.log2(total)) / LOG2E"]
    if w.hides_rows:
        finish = [
            "seen = total > 0.0",
            f"lse_row = tl.where(seen, (best + tl.log2(total)) / LOG2E, {empty})",
            "total = tl.where(seen, total, 1.0)",
        ]
    return [
        *block_of_queries(w),
        *w.to_head("q", "k", "v", "mask", "out", "lse"),
        f"query = {w.load('q', True)}",
        'best = tl.full([BLOCK_M], float("-inf"), tl.float32)  # of each query\'s scores so far',
        "total = tl.zeros([BLOCK_M], tl.float32)  # of 2 ** (score - best)",
        "result = tl.zeros([BLOCK_M, BLOCK_E], tl.float32)",
        *key_range(w),
        *key_loops(w, call(False), call(True)),
        *finish,
        w.store("out", w.cast("result / total[:, None]")),
        f"tl.store({w.at('lse')}, lse_row, mask=m < QUERIES)",
    ]
