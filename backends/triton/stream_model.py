"""What a function takes that reads and writes tensors once: traffic, waves of programs, and what is in flight."""

from __future__ import annotations

from shardc.backends.triton.matmul_model import LATENCY_S, LAUNCH_S
from shardc.backends.triton.targets import Target

STREAMED = 0.9
"""Part of the memory's rate that a copy reaches (an H200: 4.3 of 4.8 TB/s)."""
PROGRAMS = 32
"""That a unit holds at most."""


def stream_s(moved_bytes: float, programs: int, warps: int, target: Target, steps: int = 1) -> float:
    """Seconds. ``programs`` of ``warps`` each go ``steps`` times through a loop whose loads wait for one another.

    What is in flight bounds the rate (Little's law): so many programs at a time, each with what one step loads.
    """
    resident = max(1, min(target.threads // (warps * target.warp_size), PROGRAMS))
    waves = -(-max(1, programs) // (target.units * resident))
    return LAUNCH_S + max(moved_bytes / (STREAMED * target.memory_bytes_s), waves * steps * LATENCY_S)
