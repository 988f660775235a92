"""Ranges of keys and queries that a mask shows to each other. Blocks outside of them are not computed.

A separate kernel reads the mask, once for all heads that share it, and stores the first visible position and
the end. So sliding windows, padding and packed documents cost only what they show.
"""

from __future__ import annotations

import torch

from shardc.backends.triton.attention.shared import SIZES, Writer

OTHER = {"m": "n", "n": "m"}
BLOCKS = {"m": "BLOCK_M", "n": "BLOCK_N"}
WORK = {"m": "seen_keys", "n": "seen_queries"}
"""Dim whose blocks have entries -> name of the workspace."""
LEAST = 5
"""Number of blocks of the other dim from which on ranges are worth their cost."""


def entry(w: Writer, own: str) -> str:
    """Return the workspace's entry of a block."""
    order, number = w.spec.tensors["mask"].order, ""
    for dim, size, place in (("b", "", "batch"), ("h", "HEADS", "head"), (own, "blocks", "block")):
        if dim in order:
            number = f"({number}) * {size} + {place}" if number else place
    return f"{WORK[own]} + 2 * {f'({number})' if ' ' in number else number}" if number else WORK[own]


def count(w: Writer, own: str) -> list[str]:
    """Return the dims over which there are entries."""
    return [dim for dim in ("b", "h", own) if dim in w.spec.tensors["mask"].order]


def body(w: Writer, own: str) -> list[str]:
    """Return the body of ``name_seen_keys`` (for blocks of queries, ``own`` m) or ``name_seen_queries``."""
    other, order = OTHER[own], w.spec.tensors["mask"].order
    size, step, rest = SIZES[other], BLOCKS[other], "entry"
    lines = [*w.sizes(), "entry = tl.program_id(0)"]
    if own in order:
        lines += [f"blocks = tl.cdiv({SIZES[own]}, {BLOCKS[own]})", "block = entry % blocks"]
        lines += [f"{own} = block * {BLOCKS[own]} + tl.arange(0, {BLOCKS[own]})"]
        rest += " // blocks"
    else:
        lines += [f"{own} = tl.arange(0, 1)  # the mask is the same for all of them"]
    if "h" in order:
        lines += [f"head = {rest} % HEADS"]
        rest += " // HEADS"
    lines += [f"batch = {rest}"] * ("b" in order)
    return [
        *lines,
        *w.to_head("mask"),
        f"low = {size} + 0",
        "high = 0",
        f"for start in tl.range(0, {size}, {step}):",
        f"    {other} = start + tl.arange(0, {step})",
        f"    seen = {_seen(w, own, other)}",
        "    any_seen = tl.max(tl.where(seen, 1, 0), 0)",
        f"    low = tl.minimum(low, tl.min(tl.where(any_seen > 0, {other}, {size})))",
        f"    high = tl.maximum(high, tl.max(tl.where(any_seen > 0, {other} + 1, 0)))",
        f"tl.store({WORK[own]} + 2 * entry, low)",
        f"tl.store({WORK[own]} + 2 * entry + 1, high)",
    ]


def _seen(w: Writer, own: str, other: str) -> str:
    """Return the expression of whether each pair is visible: ``[own, other]``."""
    at = {own: f"{own}[:, None]", other: f"{other}[None, :]"}
    mask = w.spec.tensors["mask"]
    tests = " & ".join(f"({at[dim]} < {SIZES[dim]})" for dim in "mn" if dim in mask.order)
    load = f"tl.load({w.mask_at(at['m'], at['n'])}, mask={tests}, other="
    return f"{load}False)" if mask.type.dtype == torch.bool else f'{load}float("-inf")) > float("-inf")'
