"""Calls of attention, and the attribute that says how devices share one whose sequence is split."""

from __future__ import annotations

from torch_mlir import ir

CALLS = ("shardc.attention", "shardc.attention_backward")
ATTRIBUTE = "dist.attention"
"""Attribute of a call whose sequence is split: its method for each mesh axis, if it does not all-gather.

For example ``ulysses:inner,ring:outer``.
"""


def attention_axes(op: ir.Operation, how: str) -> frozenset[str]:
    """Return the mesh axes over which a call uses the method ``how``, such as ``ulysses``."""
    text = op.attributes.get(ATTRIBUTE)
    pairs = [] if text is None else [part.partition(":") for part in text.value.split(",")]
    return frozenset(axis for name, _, axis in pairs if name == how)


def copies(heads: int, kv_heads: int, ways: int) -> int:
    """Return how many copies of each key/value head give all of ``ways`` devices equally many.

    Both ``ways`` and ``kv_heads`` divide ``heads``. The result is 1 if ``ways`` divides ``kv_heads``.
    """
    groups = heads // kv_heads
    return next(n for n in range(1, groups + 1) if groups % n == 0 and kv_heads * n % ways == 0)
