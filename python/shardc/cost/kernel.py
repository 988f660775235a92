"""What kernels take on a GPU: the roofline, resident programs, and kernels that stream tensors once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shardc.cost.machine import Gpu
from shardc.cost.origin import Assumed


@dataclass(frozen=True)
class Estimate:
    """What the cost models say that one launch of a kernel takes, without a trial.

    ``seconds``: all of its functions, one after the other. ``flops``: of its matrix products, which matrix
    units do at ``flop_s``; ``moved_bytes``: of the tensors that it reads or writes, each once; ``bytes_s``:
    the memory's rate. ``spill_bytes``: of a thread's registers, what is stored and loaded again.
    """

    seconds: float
    flops: int
    flop_s: float
    moved_bytes: int
    bytes_s: float
    spill_bytes: int = 0

    @property
    def roofline_s(self) -> float:
        """What the target's rates alone would allow."""
        return max(self.flops / self.flop_s, self.moved_bytes / self.bytes_s)

    @property
    def bound(self) -> str:
        """What the roofline is that of."""
        return "arithmetic" if self.flops / self.flop_s > self.moved_bytes / self.bytes_s else "memory"


MOST_RESIDENT: Annotated[int, Assumed("more programs hide no more latency")] = 8
"""Programs of matrix products that a unit is taken to hold, at most."""


def resident(thread_registers: int, warps: int, shared_bytes: int, gpu: Gpu) -> int:
    """Programs of matrix products that a unit holds at a time."""
    by_registers = gpu.unit_registers // (thread_registers * gpu.warp_size * warps)
    by_shared = gpu.shared_bytes // (gpu.reserved_bytes + shared_bytes)
    return max(1, min(by_registers, by_shared, MOST_RESIDENT))


def stream_s(moved_bytes: float, programs: int, warps: int, gpu: Gpu, steps: int = 1) -> float:
    """Seconds of ``programs`` of ``warps`` that go ``steps`` times through a loop of dependent loads.

    What is in flight bounds the rate (Little's law): so many programs, each with the loads of one step.
    """
    at_once = max(1, min(gpu.threads // (warps * gpu.warp_size), gpu.unit_programs))
    waves = -(-max(1, programs) // (gpu.units * at_once))
    return gpu.launch_s + max(copy_s(moved_bytes, gpu), waves * steps * gpu.latency_s)


def copy_s(moved_bytes: float, gpu: Gpu) -> float:
    """Seconds to read or write so many bytes of memory, by a kernel that does nothing else."""
    return moved_bytes / (gpu.streamed * gpu.memory_bytes_s)
