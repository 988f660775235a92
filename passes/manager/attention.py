"""Attention as passes see it: its calls, and what a plan says of how devices share one out."""

from __future__ import annotations

from torch_mlir import ir

CALLS = ("shardc.attention", "shardc.attention_backward")
ATTRIBUTE = "dist.attention"
"""On a call: how it gets what other devices have of a cut sequence, where it does not gather it.

The text ``ulysses:inner,ring:outer`` names mesh axes.
"""


def attention_axes(op: ir.Operation, how: str) -> frozenset[str]:
    """The mesh axes over which a call gets what other devices have by ``how``, such as ``ulysses``."""
    text = op.attributes.get(ATTRIBUTE)
    pairs = [] if text is None else [part.partition(":") for part in text.value.split(",")]
    return frozenset(axis for name, _, axis in pairs if name == how)


def copies(heads: int, kv_heads: int, ways: int) -> int:
    """How often each key/value head must stand for ``ways`` devices to have as many of them each.

    ``ways`` divides ``heads``, and ``kv_heads`` does. 1 unless there are fewer of them than devices, or they
    do not divide.
    """
    groups = heads // kv_heads
    return next(n for n in range(1, groups + 1) if groups % n == 0 and kv_heads * n % ways == 0)
