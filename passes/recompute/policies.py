"""Policies of recomputation: the values that are kept from forward for backward."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.call import target_name
from shardc.dialects.dist.collectives.names import COLLECTIVES

PHASE = "recompute"
"""``dist.phase`` of the clones."""
PRODUCTS = ("aten.mm", "aten.bmm", "aten.matmul", "aten.addmm", "aten.baddbmm", "aten.convolution")
ATTENTION = ("shardc.attention", "aten._scaled_dot_product_flash_attention_for_cpu")


def is_kept(op: ir.Operation) -> bool:
    """Return whether ``selective`` keeps an op's results: those of products, attention and communication."""
    is_torch = op.name.startswith("torch.")
    return op.name in COLLECTIVES or (is_torch and target_name(op) in (*PRODUCTS, *ATTENTION))
