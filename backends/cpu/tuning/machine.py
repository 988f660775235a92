"""The CPU of this machine, as models of costs know it: sizes of caches are the kernel's own (sysfs)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from shardc.backends.cpu.host import vector_bytes, vector_registers
from shardc.cost.machine import Cpu

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@cache
def this_machine() -> Cpu:
    """Levels that the kernel says nothing of have the typical sizes."""
    found = dict(enumerate(Cpu.caches, 1))
    for folder in sorted(CACHES.glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and int(level) in found:
            found[int(level)] = int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
    return Cpu(vector_bytes(), vector_registers(), (found[1], found[2], found[3]))
