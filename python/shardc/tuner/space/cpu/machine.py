"""What the models of costs know of a CPU: widths, sizes of caches, and rates in bytes a cycle.

Sizes are the kernel's own (sysfs); rates are those of a recent x86-64 core, constants, so that equal machines choose
alike. A model ranks: its seconds are cycles at a nominal clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shardc.backends.cpu.target import vector_bytes, vector_registers

CLOCK_HZ = 3.5e9
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
TYPICAL = {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}
"""Bytes of a cache that the kernel says nothing of."""


@dataclass(frozen=True)
class Machine:
    """One core. ``caches``: bytes of each level; ``rates``: bytes a cycle from each, and from memory."""

    vector_bytes: int
    registers: int
    caches: tuple[int, int, int]
    rates: tuple[float, float, float, float] = (64.0, 32.0, 14.0, 8.0)
    fma: float = 2.0
    """Vectors of products a cycle."""
    latency: float = 4.0
    """Cycles until an addition's result is there."""
    barrier: float = 4000.0
    """Cycles until threads have met."""

    def level(self, held_bytes: float) -> int:
        """The level, from 0, that holds so many bytes with room for others: 3 is memory."""
        return next((at for at, size in enumerate(self.caches) if held_bytes <= 0.75 * size), 3)

    def rate(self, held_bytes: float) -> float:
        """Bytes a cycle from where so many are held."""
        return self.rates[self.level(held_bytes)]


@cache
def this_machine() -> Machine:
    found = dict(TYPICAL)
    for folder in sorted(CACHES.glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and int(level) in found:
            found[int(level)] = int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
    return Machine(vector_bytes(), vector_registers(), (found[1], found[2], found[3]))
