"""Configurations of matmuls on GPUs: one program per tile, several per tile, or a loop over tiles.

A value of ``#kern.config`` is at least 1, so none can mean "off". Each form is thus a separate sketch: a
sketch without ``split``, ``persistent`` or ``pointers`` does not use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from shardc.backends.tuning.sketches import NEAR
from shardc.backends.tuning.space import Parameter, Sketch
from shardc.cost.machine import Gpu
from shardc.cost.matmul import Product, Tiling, estimate_s
from shardc.cost.tilings import BLOCKS, DEPTHS, GROUPS, SPLITS, STAGES, WARPS, group_of, refusal, waste

TILE = (
    Parameter("block_m", BLOCKS),
    Parameter("block_n", BLOCKS),
    Parameter("block_k", DEPTHS),
    Parameter("warps", WARPS),
    Parameter("stages", STAGES),
    Parameter("group", GROUPS),
)
POINTERS = 1.1
"""Time with loads by pointers, relative to loads by descriptors."""


def sketches(product: Product, target: Gpu) -> tuple[Sketch, ...]:
    """Return a sketch for each form that one product may have."""
    forms = {"tiles": (), "split": (Parameter("split", tuple(s for s in SPLITS if s > 1)),)}
    if product.by_descriptor and product.matrix:
        forms["persistent"] = (Parameter("persistent", (1,)),)
    if product.by_descriptor:
        forms["pointers"] = (Parameter("pointers", (1,)),)
    found = []
    for name, more in forms.items():
        form = _Form(product, target, POINTERS if name == "pointers" else 1.0)
        found.append(Sketch(f"matmul_{name}", (*TILE, *more), form.refusal, form.estimate_s))
    return tuple(found)


@dataclass(frozen=True)
class _Form:
    product: Product
    target: Gpu
    factor: float

    def refusal(self, values: Mapping[str, int]) -> str | None:
        for name in ("block_m", "block_n", "block_k", "warps"):
            if values[name] & (values[name] - 1):
                return f"{name} = {values[name]} is no power of 2"
        tiling = tiling_of(values)
        rows = -(-self.product.m // tiling.block_m)
        if tiling.group > 1 and tiling.group > rows:
            return f"groups of {tiling.group} rows of tiles, of which there are {rows}"
        return waste(tiling, self.product, self.target) or refusal(tiling, self.product, self.target)

    def estimate_s(self, values: Mapping[str, int]) -> float:
        tiling = tiling_of(values)
        away = tiling.group != group_of(tiling, self.product, self.target)
        return self.factor * estimate_s(tiling, self.product, self.target) * (1 + NEAR * away)


def tiling_of(values: Mapping[str, int]) -> Tiling:
    """Return the tiling that a configuration sets."""
    return Tiling(**{f.name: values[f.name] for f in fields(Tiling) if f.name in values})
