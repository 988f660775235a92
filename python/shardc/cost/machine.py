"""Machines as data: GPUs and CPU cores, each figure with its origin. Facts of an instruction set decide what
is legal (shared memory, registers); rates and times steer estimates only.
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
    """A GPU, as kernels are compiled for and estimated on.

    ``backend``, ``arch`` and ``warp_size`` are what ``triton.backends.compiler.GPUTarget`` takes; ``part`` is
    the best-known GPU of the architecture, whose units, memories and rates these are. Times in seconds, sizes
    in bytes, rates in bytes/s and FLOP/s.
    """

    name: str
    part: str
    backend: str
    arch: int | str
    warp_size: Annotated[int, _ISA]
    units: Annotated[int, _PART]
    """Streaming multiprocessors, or compute units."""
    shared_bytes: Annotated[int, _ISA]
    """That one program can have."""
    registers: Annotated[int, _ISA]
    """Of 32 bits, a thread can have."""
    unit_registers: Annotated[int, _ISA]
    """That one program can have: those of a multiprocessor, or of one unit's share of a compute unit's."""
    threads: Annotated[int, _ISA]
    """That one unit holds at a time."""
    memory_bytes_s: Annotated[float, _PART]
    matmul_flop_s: Annotated[float, _PART]
    """Dense, bf16."""
    l2_bytes: Annotated[int, _PART]
    l2_bytes_s: Annotated[float, Assumed("64 bytes a clock and unit")]
    vector_bytes: Annotated[int, _ISA] = 16
    """Of the widest load."""
    program_threads: Annotated[int, _ISA] = 1024
    """That one program can have."""
    unit_programs: Annotated[int, _ISA] = 32
    """That a unit holds at most."""
    reserved_bytes: Annotated[int, _ISA] = 1024
    """Of a program's shared memory."""
    launch_s: Annotated[float, Assumed("a kernel that starts behind another one of its stream")] = 3e-6
    latency_s: Annotated[float, Assumed("a read from memory; starting or ending a tile")] = 0.8e-6
    step_s: Annotated[float, _TILES] = 2e-9
    """Barriers and addresses of a step along a sum."""
    sync_s: Annotated[float, Assumed("a copy to the host that is waited for, and starting again")] = 20e-6
    streamed: Annotated[float, Measured("an H200, copy: 4.3 of 4.8 TB/s", "2026")] = 0.9
    """Part of the memory's rate that a copy reaches."""
    l2_reuse: Annotated[float, _TILES] = 1.0
    """Part of what L2 could deliver that tiles get."""
    plain_part: Annotated[float, Sheet("NVIDIA A100: 19.5 TFLOP/s in f32, 312 in bf16")] = 1 / 16
    """Rate of the plain units, of that of the matrix units."""
    fma_part: Annotated[float, Assumed("half of the instructions of such a product are loads")] = 0.5
    """Part of the plain units' rate that products without matrix instructions get."""
    mma_sync: Annotated[float, Assumed("to be measured on a GPU")] = 0.6
    """Part of the rate of sm_90's and sm_100's matrix units that sm_80's instructions get."""

    @property
    def has_groups(self) -> bool:
        """Whether matrix instructions are those of a group of warps, which read shared memory."""
        return self.arch in (90, 100)

    def flop_s(self, element_bytes: int, matrix: bool) -> float:
        """The rate of the units that can multiply such elements."""
        return self.matmul_flop_s * (2 / element_bytes if matrix else self.plain_part)


_ROWS = (  # in the order of the fields
    ("sm_80", "A100", "cuda", 80, 32, 108, 163 << 10, 255, 1 << 16, 2048, 2.0e12, 312e12, 40 << 20, 9.7e12),
    ("sm_90", "H200", "cuda", 90, 32, 132, 227 << 10, 255, 1 << 16, 2048, 4.8e12, 989e12, 50 << 20, 14.8e12),
    ("sm_100", "B200", "cuda", 100, 32, 148, 227 << 10, 255, 1 << 16, 2048, 8e12, 2250e12, 126 << 20, 18e12),
    ("gfx942", "MI300X", "hip", "gfx942", 64, 304, 65536, 512, 1 << 17, 2048, 5.3e12, 1307e12, 2**28, 4e13),
)
GPUS = {gpu.name: gpu for gpu in (Gpu(*row) for row in _ROWS)}
"""By name."""


def find_gpu(name: str) -> Gpu:
    """Raises UnknownTarget, which lists those that there are."""
    if name not in GPUS:
        raise UnknownTarget(target=name, known=", ".join(GPUS))
    return GPUS[name]


_CORE = Assumed("a recent x86-64 core; constants, so that equal machines choose alike")
_HERE = Measured("this machine: its instruction sets", "at each start")
_RANKS = Assumed("ranks what was measured on a Zen 5 (decision 43)")


@dataclass(frozen=True)
class Cpu:
    """One core of a CPU. Models of its kernels count cycles; rates are bytes a cycle. ``caches``: bytes of
    each level; ``rates``: from each, and from memory.
    """

    vector_bytes: Annotated[int, _HERE]
    registers: Annotated[int, _HERE]
    caches: Annotated[tuple[int, int, int], _CORE] = (32 << 10, 1 << 20, 32 << 20)
    rates: Annotated[tuple[float, float, float, float], _CORE] = (64.0, 32.0, 14.0, 8.0)
    clock_hz: Annotated[float, _CORE] = 3.5e9
    """Nominal: what turns cycles into seconds."""
    fma: Annotated[float, _CORE] = 2.0
    """Vectors of products a cycle."""
    latency: Annotated[float, _CORE] = 4.0
    """Cycles until an addition's result is there."""
    barrier: Annotated[float, _RANKS] = 4000.0
    """Cycles until threads have met."""
    line_bytes: Annotated[int, _CORE] = 64
    """Of a cache line."""
    sets: Annotated[int, _CORE] = 1024
    """Of the second cache."""
    ways: Annotated[int, _CORE] = 16
    """Of the second cache."""
    addition: Annotated[float, Measured("a Zen 5: an exponential, 12 of them, takes 7", "decision 39")] = 0.55
    """Cycles of an addition in a vector, with what waits for it."""
    exponential: Annotated[float, _RANKS] = 9.0
    """Cycles of a vector of an attention's scores between the products."""
    loop: Annotated[float, _RANKS] = 30.0
    """Cycles of starting and ending a loop, and of adding up its lanes."""
    block: Annotated[float, _RANKS] = 60.0
    """Cycles that an attention's product of a block begins and ends with."""
    row: Annotated[float, _RANKS] = 0.2
    """Cycles that an element of a matmul's left operand costs beside the products, each step. Rows that lie
    apart cost more: a tile of 12 x 32 takes 1.2 times as long as one of 6 x 64.
    """
    vector: Annotated[float, _RANKS] = 0.1
    """The same of a vector of the right one."""
    page: Annotated[float, _RANKS] = 2.5
    """Cycles of a step whose row of the right operand is in a page of its own."""
    far_bytes: Annotated[int, Assumed("smaller ones are in the last cache")] = 1 << 22
    """Inputs of fewer bytes are not fetched ahead."""
    near_bytes: Annotated[int, Measured("a Zen 5, one thread", "decision 39")] = 1 << 13
    """Rows of so many bytes at most are fetched into the first cache."""
    streamed_bytes: Annotated[int, Measured("a Zen 5, one thread", "decision 35")] = 1 << 24
    """Results of so many bytes are written past the caches."""
    thread_work: Annotated[int, Measured("a Zen 5: 2^20 is 1.38 times slower", "decision 39")] = 1 << 17
    """Additions below which another thread does not pay."""
    packed_bytes: Annotated[int, Assumed("part of the last cache, from which it is read")] = 3 << 22
    """What a matmul's packed block of the right operand may take, of which there is one."""
    private_bytes: Annotated[int, Assumed("more than the second cache, part of the last")] = 1 << 21
    """The same where each thread has one of its own."""

    def level(self, held_bytes: float) -> int:
        """The level, from 0, that holds so many bytes with room for others: 3 is memory."""
        return next((at for at, size in enumerate(self.caches) if held_bytes <= 0.75 * size), 3)

    def rate(self, held_bytes: float) -> float:
        """Bytes a cycle from where so many are held."""
        return self.rates[self.level(held_bytes)]

    def cycles(self, moved_bytes: float, held_bytes: float) -> float:
        """Cycles to move so many bytes, of so many that are held."""
        return moved_bytes / self.rate(held_bytes)
