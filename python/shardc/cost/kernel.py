"""Times of GPU kernels: the roofline, resident programs, and kernels that stream tensors once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shardc.cost.machine import Gpu
from shardc.cost.origin import Assumed


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of one launch of a kernel.

    ``seconds``: time of all of its functions in sequence. ``flops``: work of its matmuls, which matrix units
    do at ``flop_s``. ``moved_bytes``: size of the tensors that it reads or writes, each once. ``bytes_s``:
    the memory's rate. ``spill_bytes``: bytes of a thread's registers that are stored and loaded again.
    """

    seconds: float
    flops: int
    flop_s: float
    moved_bytes: int
    bytes_s: float
    spill_bytes: int = 0

    @property
    def roofline_s(self) -> float:
        """Return the lower bound on time that the target's rates give."""
        return max(self.flops / self.flop_s, self.moved_bytes / self.bytes_s)

    @property
    def bound(self) -> str:
        """Return the limit that the roofline comes from: arithmetic or memory."""
        return "arithmetic" if self.flops / self.flop_s > self.moved_bytes / self.bytes_s else "memory"


MOST_RESIDENT: Annotated[int, Assumed("more programs hide no more latency")] = 8
"""Maximum number of resident matmul programs per unit that is assumed."""


def resident(thread_registers: int, warps: int, shared_bytes: int, gpu: Gpu) -> int:
    """Return the number of matmul programs that a unit holds at a time."""
    by_registers = gpu.unit_registers // (thread_registers * gpu.warp_size * warps)
    by_shared = gpu.shared_bytes // (gpu.reserved_bytes + shared_bytes)
    return max(1, min(by_registers, by_shared, MOST_RESIDENT))


def stream_s(moved_bytes: float, programs: int, warps: int, gpu: Gpu, steps: int = 1) -> float:
    """Return the seconds of ``programs`` of ``warps`` with ``steps`` iterations of a loop of dependent loads.

    Data in flight limits the rate (Little's law): that of the resident programs, each with the loads of one
    step.
    """
    at_once = max(1, min(gpu.threads // (warps * gpu.warp_size), gpu.unit_programs))
    waves = -(-max(1, programs) // (gpu.units * at_once))
    return gpu.launch_s + max(copy_s(moved_bytes, gpu), waves * steps * gpu.latency_s)


def copy_s(moved_bytes: float, gpu: Gpu) -> float:
    """Return the seconds in which a kernel that does nothing else reads or writes so many bytes."""
    return moved_bytes / (gpu.streamed * gpu.memory_bytes_s)
