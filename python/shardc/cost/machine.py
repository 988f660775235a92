"""Machines as data: GPUs and CPU cores, each figure with its origin.

Facts of an instruction set (shared memory, registers) decide what is legal; rates and times affect estimates
only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shardc.cost.origin import Assumed, Measured, Sheet
from shardc.diagnostics.kernels import UnknownTarget

_PART = Sheet("the data sheet of the part that the row names")
_TILES = Measured("532 tilings of seven products on an H200", "decision 112")
_ISA = Sheet("CUDA C++ programming guide, table of compute capabilities; AMD CDNA 3 ISA guide")


@dataclass(frozen=True)
class Gpu:
    """A GPU that kernels are compiled for and estimated on.

    ``backend``, ``arch`` and ``warp_size`` are arguments of ``triton.backends.compiler.GPUTarget``. ``part``
    is the best-known GPU of the architecture, whose units, memories and rates these are. Times in seconds,
    sizes in bytes, rates in bytes/s and FLOP/s.
    """

    name: str
    part: str
    backend: str
    arch: int | str
    warp_size: Annotated[int, _ISA]
    units: Annotated[int, _PART]
    """Number of streaming multiprocessors, or compute units."""
    shared_bytes: Annotated[int, _ISA]
    """Shared memory of one program."""
    registers: Annotated[int, _ISA]
    """Maximum number of 32-bit registers of a thread."""
    unit_registers: Annotated[int, _ISA]
    """Registers of one program: those of a multiprocessor, or one unit's share of a compute unit's."""
    threads: Annotated[int, _ISA]
    """Maximum number of threads that a unit holds at a time."""
    memory_bytes_s: Annotated[float, _PART]
    matmul_flop_s: Annotated[float, _PART]
    """Dense bf16 rate."""
    l2_bytes: Annotated[int, _PART]
    l2_bytes_s: Annotated[float, Assumed("64 bytes a clock and unit")]
    vector_bytes: Annotated[int, _ISA] = 16
    """Size of the widest load."""
    program_threads: Annotated[int, _ISA] = 1024
    """Maximum number of threads of one program."""
    unit_programs: Annotated[int, _ISA] = 32
    """Maximum number of programs that a unit holds."""
    reserved_bytes: Annotated[int, _ISA] = 1024
    """Reserved part of a program's shared memory."""
    launch_s: Annotated[float, Assumed("a kernel that starts behind another one of its stream")] = 3e-6
    latency_s: Annotated[float, Assumed("a read from memory; starting or ending a tile")] = 0.8e-6
    step_s: Annotated[float, _TILES] = 2e-9
    """Time of barriers and addresses in a step along a sum."""
    sync_s: Annotated[float, Assumed("a copy to the host that is waited for, and starting again")] = 20e-6
    streamed: Annotated[float, Measured("an H200, copy: 4.3 of 4.8 TB/s", "2026")] = 0.9
    """Share of the memory's rate that a copy reaches."""
    l2_reuse: Annotated[float, _TILES] = 1.0
    """Share of L2's peak rate that tiles get."""
    plain_part: Annotated[float, Sheet("NVIDIA A100: 19.5 TFLOP/s in f32, 312 in bf16")] = 1 / 16
    """Ratio of the plain units' rate to the matrix units'."""
    fma_part: Annotated[float, Assumed("half of the instructions of such a product are loads")] = 0.5
    """Share of the plain units' rate that products without matrix instructions get."""
    mma_sync: Annotated[float, Assumed("to be measured on a GPU")] = 0.6
    """Share of the rate of sm_90's and sm_100's matrix units that sm_80's instructions get."""

    @property
    def has_groups(self) -> bool:
        """Return whether matrix instructions belong to a group of warps and read shared memory."""
        return self.arch in (90, 100)

    def flop_s(self, element_bytes: int, matrix: bool) -> float:
        """Return the rate of the units that multiply such elements."""
        return self.matmul_flop_s * (2 / element_bytes if matrix else self.plain_part)


_ROWS = (  # in the order of the fields
    ("sm_80", "A100", "cuda", 80, 32, 108, 163 << 10, 255, 1 << 16, 2048, 2.0e12, 312e12, 40 << 20, 9.7e12),
    ("sm_90", "H200", "cuda", 90, 32, 132, 227 << 10, 255, 1 << 16, 2048, 4.8e12, 989e12, 50 << 20, 14.8e12),
    ("sm_100", "B200", "cuda", 100, 32, 148, 227 << 10, 255, 1 << 16, 2048, 8e12, 2250e12, 126 << 20, 18e12),
    ("gfx942", "MI300X", "hip", "gfx942", 64, 304, 65536, 512, 1 << 17, 2048, 5.3e12, 1307e12, 2**28, 4e13),
)
GPUS = {gpu.name: gpu for gpu in (Gpu(*row) for row in _ROWS)}
"""GPUs by target name."""


def find_gpu(name: str) -> Gpu:
    """Return the GPU of a target. Raises UnknownTarget, which lists all."""
    if name not in GPUS:
        raise UnknownTarget(target=name, known=", ".join(GPUS))
    return GPUS[name]


_CORE = Assumed("a recent x86-64 core; constants, so that equal machines choose alike")
_HERE = Measured("this machine: its instruction sets", "at each start")
_RANKS = Assumed("ranks what was measured on a Zen 5 (decision 43)")


@dataclass(frozen=True)
class Cpu:
    """One core of a CPU. Models of its kernels count cycles; rates are bytes per cycle.

    ``caches``: bytes of each level. ``rates``: from each level, and from memory.
    """

    vector_bytes: Annotated[int, _HERE]
    registers: Annotated[int, _HERE]
    caches: Annotated[tuple[int, int, int], _CORE] = (32 << 10, 1 << 20, 32 << 20)
    rates: Annotated[tuple[float, float, float, float], _CORE] = (64.0, 32.0, 14.0, 8.0)
    clock_hz: Annotated[float, _CORE] = 3.5e9
    """Nominal clock, which turns cycles into seconds."""
    fma: Annotated[float, _CORE] = 2.0
    """Vectors of multiply-adds per cycle."""
    latency: Annotated[float, _CORE] = 4.0
    """Cycles until an addition's result is available."""
    barrier: Annotated[float, _RANKS] = 4000.0
    """Cycles until all threads have reached a barrier."""
    line_bytes: Annotated[int, _CORE] = 64
    """Size of a cache line."""
    sets: Annotated[int, _CORE] = 1024
    """Number of sets of the second-level cache."""
    ways: Annotated[int, _CORE] = 16
    """Associativity of the second-level cache."""
    addition: Annotated[float, Measured("a Zen 5: an exponential, 12 of them, takes 7", "decision 39")] = 0.55
    """Cycles of an addition in a vector, with the work that waits for it."""
    exponential: Annotated[float, _RANKS] = 9.0
    """Cycles for a vector of attention scores between the products."""
    loop: Annotated[float, _RANKS] = 30.0
    """Cycles of starting and ending a loop, and of adding up its lanes."""
    block: Annotated[float, _RANKS] = 60.0
    """Cycles of starting and ending an attention's product of a block."""
    row: Annotated[float, _RANKS] = 0.2
    """Cycles that an element of a matmul's left operand costs per step besides the products.

    Rows that are far apart cost more: a tile of 12 x 32 takes 1.2 times as long as one of 6 x 64.
    """
    vector: Annotated[float, _RANKS] = 0.1
    """The same for a vector of the right operand."""
    page: Annotated[float, _RANKS] = 2.5
    """Cycles of a step whose row of the right operand is in a page of its own."""
    far_bytes: Annotated[int, Assumed("smaller ones are in the last cache")] = 1 << 22
    """Inputs below this size are not prefetched."""
    near_bytes: Annotated[int, Measured("a Zen 5, one thread", "decision 39")] = 1 << 13
    """Rows up to this size are prefetched into the first-level cache."""
    streamed_bytes: Annotated[int, Measured("a Zen 5, one thread", "decision 35")] = 1 << 24
    """Results from this size on are written past the caches."""
    thread_work: Annotated[int, Measured("a Zen 5: 2^20 is 1.38 times slower", "decision 39")] = 1 << 17
    """Additions below which another thread does not pay."""
    packed_bytes: Annotated[int, Assumed("part of the last cache, from which it is read")] = 3 << 22
    """Maximum size of a matmul's packed block of the right operand, if threads share one."""
    private_bytes: Annotated[int, Assumed("more than the second cache, part of the last")] = 1 << 21
    """The same if each thread has a block of its own."""

    def level(self, held_bytes: float) -> int:
        """Return the level, from 0, that holds so many bytes with room for others; 3 is memory."""
        return next((at for at, size in enumerate(self.caches) if held_bytes <= 0.75 * size), 3)

    def rate(self, held_bytes: float) -> float:
        """Return the bytes per cycle from the level that holds so many bytes."""
        return self.rates[self.level(held_bytes)]

    def cycles(self, moved_bytes: float, held_bytes: float) -> float:
        """Return the cycles to move ``moved_bytes`` from the level that holds ``held_bytes``."""
        return moved_bytes / self.rate(held_bytes)
