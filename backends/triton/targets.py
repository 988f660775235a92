"""The GPUs that kernels are compiled for, and the figures that configurations are chosen by.

Figures are of the vendors' data sheets: shared memory a program can have and registers are facts of the instruction
set; units, bandwidth and rates are those of the best-known part of it, and steer estimates only.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.diagnostics.triton import UnknownGpuTarget


@dataclass(frozen=True)
class Target:
    """A GPU: ``backend``, ``arch`` and ``warp_size`` are what ``triton.backends.compiler.GPUTarget`` takes."""

    name: str
    backend: str
    arch: int | str
    warp_size: int
    units: int
    """Streaming multiprocessors, or compute units."""
    shared_bytes: int
    """That one program can have."""
    registers: int
    """Of 32 bits, a thread can have."""
    threads: int
    """That one unit holds at a time."""
    memory_bytes_s: float
    matmul_flop_s: float
    """Dense, bf16."""
    l2_bytes: int
    l2_bytes_s: float
    """64 bytes a clock and unit."""


TARGETS = {
    t.name: t
    for t in (
        Target("sm_80", "cuda", 80, 32, 108, 163 << 10, 255, 2048, 2.0e12, 312e12, 40 << 20, 9.7e12),
        Target("sm_90", "cuda", 90, 32, 132, 227 << 10, 255, 2048, 4.8e12, 989e12, 50 << 20, 14.8e12),
        Target("sm_100", "cuda", 100, 32, 148, 227 << 10, 255, 2048, 8.0e12, 2250e12, 126 << 20, 18.0e12),
        Target("gfx942", "hip", "gfx942", 64, 304, 64 << 10, 512, 2048, 5.3e12, 1307e12, 256 << 20, 40.0e12),
    )
}
"""By name: A100, H200, B200, MI300X."""


def find_target(name: str) -> Target:
    """Raises UnknownGpuTarget, which lists those that there are."""
    if name not in TARGETS:
        raise UnknownGpuTarget(target=name, known=", ".join(TARGETS))
    return TARGETS[name]
