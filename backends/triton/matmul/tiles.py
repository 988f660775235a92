"""Tiles of the products in cross entropies of linear layers and grouped matmuls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from shardc.backends.triton.emit.text import VALUES
from shardc.cost.machine import Gpu
from shardc.cost.matmul import Product, Tiling, accumulators, estimate_s, registers
from shardc.cost.tilings import tilings
from shardc.diagnostics.triton import TritonKernelNotSupported
from shardc.dialects.kern.types import ELEMENTS

SUMS = 128
"""Limit of a thread's accumulators without spills, measured by compiling.

It is halved if other values are in registers beside them, and halved again on sm_80 and AMD, whose products
read their factors from registers. Factors in registers count as well.
"""


def whole_tiling(p: Product, target: Gpu, config: Mapping[str, int], beside: bool = False) -> Tiling:
    """Return the tiling with the least estimated time, one program per tile.

    ``config`` may set blocks, warps and stages. ``beside``: another number is in registers with each sum.
    Raises TritonKernelNotSupported if no tiling fits.
    """
    limit = SUMS // (2 if beside else 1) // (1 if target.arch in (90, 100) else 2)
    whole = [t for t in tilings(p, target) if t.split == 1 and not t.persistent]
    held = [t for t in whole if accumulators(t, target) <= limit]
    fit = [t for t in held if p.direct or registers(t, p, target) <= SUMS]
    if not fit:
        raise TritonKernelNotSupported(what="a product for which no tile fits")
    chosen = min(fit, key=lambda t: estimate_s(t, p, target))
    names = ("block_m", "block_n", "block_k", "warps", "stages")
    return replace(chosen, **{name: config[name] for name in names if name in config})


def blocks(t: Tiling) -> dict[str, int]:
    """Return the constants of a function under a tiling."""
    return {"BLOCK_M": t.block_m, "BLOCK_N": t.block_n, "BLOCK_K": t.block_k, "GROUP": t.group}


def masked_load(pointer: str, *conditions: tuple[str, int]) -> str:
    """Return a load, masked by the conditions whose size is not a multiple of its block."""
    masks = " & ".join(f"({text})" for text, rest in conditions if rest)
    return f"tl.load({pointer}, mask={masks}, other=0.0)" if masks else f"tl.load({pointer})"


def cast(value: str, dtype: torch.dtype) -> str:
    """Return an f32 value converted for a store to a tensor of ``dtype``."""
    return value if dtype == torch.float32 else f"{value}.to({VALUES[ELEMENTS[dtype]]})"


def place_text(name: str) -> str:
    """Return the function ``name_place``."""
    return f'''@triton.jit
def {name}_place(number, rows, columns, GROUP: tl.constexpr):
    """Row and column of a tile. GROUP rows of tiles run together: they read the same columns while those are in L2."""
    first = number // (GROUP * columns) * GROUP
    height = tl.minimum(rows - first, GROUP)
    within = number % (GROUP * columns)
    return first + within % height, within // height'''  # noqa: E501
