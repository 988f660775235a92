"""Policies of recomputation: the values that are kept from forward for backward."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.aten.call import target_name
from shardc.dialects.dist.collectives.names import ALL_GATHER, COLLECTIVES

PHASE = "recompute"
"""``dist.phase`` of the clones."""
PRODUCTS = ("aten.mm", "aten.bmm", "aten.matmul", "aten.addmm", "aten.baddbmm", "aten.convolution")
ATTENTION = ("shardc.attention", "aten._scaled_dot_product_flash_attention_for_cpu")


def is_kept(op: ir.Operation) -> bool:
    """Return whether ``selective`` keeps an op's results: those of products, attention and communication.

    Gathers run again: what a device keeps is its shard (Korthikanti et al. 2022, section 4.2.2).
    """
    if op.name in COLLECTIVES:
        return op.name != ALL_GATHER
    return op.name.startswith("torch.") and target_name(op) in (*PRODUCTS, *ATTENTION)
