"""Shared memory, registers and estimated time of a tile of a matmul on a GPU.

For the unit (streaming multiprocessor) with the most tiles, the estimate counts matrix instructions, bytes
that tiles fetch from L2, and latency that the stages of a tile's pipeline do not hide. For the whole GPU it
counts bytes from memory, given the tiles that run at the same time and share what they read. The form is that
of Swann et al., tritonBLAS (2025, arXiv 2512.04226): everything follows from the shape and a few figures of
the GPU.

Registers that a thread spills while it writes a tile are stored and loaded again once, at the rate at which
tiles get bytes from L2. This is an assumption that was not measured on a GPU: buffers of factors leave little
of the memory that serves as L1 and shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shardc.cost.kernel import resident
from shardc.cost.machine import Gpu
from shardc.cost.origin import Assumed, Measured, Sheet

_COMPILED = Measured("binaries of Triton 3.6", "decisions 26 and 57")

OTHERS: Annotated[int, _COMPILED] = 49
"""Registers of a thread for addresses, apart from sums and values that live with them."""
MASKS: Annotated[int, _COMPILED] = 24
"""Further registers for factors that are not copied 16 bytes at a time."""
SPILL_BOUND: Annotated[int, _COMPILED] = 2
"""Upper bound on measured spills, as a multiple of estimated ones."""
INSTRUCTION_FLOP: Annotated[int, Sheet("sm_90, a unit and clock: 4096 FLOP in bf16, 128 instructions")] = 32
"""FLOP that a unit's matrix instructions compute in the time of one element's plain instruction."""
LOAD_WORK: Annotated[int, Measured("48 tilings of 4097 x 4095 x 2056 on an H200", "decision 112")] = 5
"""Instructions for an element of a factor that passes through registers: its address, mask and store."""
APART: Annotated[float, Measured("the same", "decision 112")] = 0.72
"""Share of the rate that products reach if they wait for such loads."""
APART_S: Annotated[float, Measured("the same", "decision 112")] = 1.5e-7
"""Seconds per step for barriers before and after such loads."""
CROWDED: Annotated[float, Measured("the same", "decision 112")] = 1.25
"""Slowdown of such a step if a thread has more than 64 sums, which leave few registers for loads."""
_TILINGS = Measured("532 tilings of seven products on an H200", "decision 112")
NEXT_TILE: Annotated[float, _TILINGS] = 0.17
"""Share of the latency between tiles that a loop over tiles pays, since it loads the next tile early."""
NEXT_WRITE: Annotated[float, _TILINGS] = 0.2
"""The same for the time to write a tile."""
LATENCIES: Annotated[float, _TILINGS] = 1.1
"""Latencies of memory from the request for a step's factors until their arrival."""
TRANSFER: Annotated[float, _TILINGS] = 0.63
"""Share of the time of their transfer that adds to that wait."""
UNHIDDEN: Annotated[float, Assumed("of equal tilings those with more steps ahead are faster")] = 0.05
"""Share of that wait, divided by the steps ahead, which adds to a step whatever its bound is."""
FULL: Annotated[float, _TILINGS] = 0.6
"""Share of the matrix units' rate that tiles of 64 reach; wider ones reach up to 4/3 of it."""
NARROW: Annotated[float, Assumed("what starts and ends an instruction counts more")] = 0.45
"""The same for narrower tiles."""


@dataclass(frozen=True)
class Product:
    """Sizes and properties of a matmul.

    Attributes:
        element_bytes: Size of an element of the factors, as multiplied.
        result_bytes: Bytes read and written for an element of the result.
        matrix: Whether matrix instructions multiply it (not f32 without tf32, and not f64).
        direct: Whether factors are copied to shared memory unchanged, past the registers, 16 bytes at a time.
        finish_bytes: Shared memory per element of a tile while it is written, in the order in which threads
            hold what they read and write.
        by_descriptor: Whether tensor descriptors can read both factors; otherwise loops over tiles take too
            many registers.
        left_bytes, right_bytes: Bytes from which an element of a factor is computed, if that happens inside
            the kernel.
        left_work, right_work: Instructions for that.
        result_work: Instructions for an element of what follows the product.
        beside: Registers for values that live with each sum meanwhile.
    """

    batch: int
    m: int
    n: int
    k: int
    element_bytes: int
    result_bytes: int
    matrix: bool = True
    direct: bool = True
    finish_bytes: int = 4
    by_descriptor: bool = False
    left_bytes: int = 0
    right_bytes: int = 0
    left_work: int = 0
    right_work: int = 0
    result_work: int = 0
    beside: float = 0

    @property
    def read(self) -> tuple[int, int]:
        """Return the bytes in memory from which an element of each factor is made."""
        return self.left_bytes or self.element_bytes, self.right_bytes or self.element_bytes

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def moved_bytes(self) -> int:
        """Return the traffic if each byte moves once."""
        left, right = self.read
        return self.batch * ((self.m * left + self.n * right) * self.k + self.m * self.n * self.result_bytes)

    def flop_s(self, gpu: Gpu) -> float:
        """Return the rate of the units that multiply such factors."""
        return gpu.flop_s(self.element_bytes, self.matrix)


@dataclass(frozen=True)
class Tiling:
    """One configuration, with the names of ``#kern.config``.

    ``group``: rows of tiles that run together. ``split``: programs that share the terms of a sum.
    ``persistent``: whether each unit has one program, which loops over tiles.
    """

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    group: int = 8
    split: int = 1
    persistent: int = 0

    def tiles(self, p: Product) -> int:
        return p.batch * -(-p.m // self.block_m) * -(-p.n // self.block_n)


def shared_bytes(t: Tiling, p: Product, gpu: Gpu) -> int:
    """Return a program's shared memory: a buffer per stage, or one less (sm_80, AMD).

    On sm_80 and AMD products read registers.
    """
    stages = t.stages if gpu.has_groups else max(1, t.stages - 1)
    bytes_ = stages * (t.block_m + t.block_n) * t.block_k * p.element_bytes
    if p.element_bytes == 4 and gpu.arch == 100:  # tf32 terms must lie side by side: turned copies
        bytes_ += 2 * max(t.block_m, t.block_n) * t.block_k * p.element_bytes
    if t.persistent:  # the next tile is loaded while this one is written
        bytes_ += t.block_m * t.block_n * p.finish_bytes
    return bytes_


def accumulators(t: Tiling, gpu: Gpu) -> int:
    """Return the registers of a thread that hold sums."""
    return t.block_m * t.block_n // (gpu.warp_size * t.warps)


def registers(t: Tiling, p: Product, gpu: Gpu) -> int:
    """Return the registers of a thread in the inner loop: for sums, and factors that pass through."""
    passing = 0 if p.direct else (t.block_m + t.block_n) * t.block_k // (gpu.warp_size * t.warps)
    return accumulators(t, gpu) + passing


def spill_bytes(t: Tiling, p: Product, gpu: Gpu) -> int:
    """Return the bytes that a thread spills once per tile, while the tile is written.

    Measured by compiling (decision 57). Tilings that spill at every step along the sum are refused instead.
    """
    if t.split > 1:
        return 0
    others = OTHERS if p.direct else OTHERS + MASKS
    return 4 * max(0, registers(t, p, gpu) + _beside(t, p, gpu) + others - thread_registers(t, gpu))


def _beside(t: Tiling, p: Product, gpu: Gpu) -> int:
    """Return the registers of a thread for values that live with its sums; partial sums have none."""
    return int(accumulators(t, gpu) * p.beside) if t.split == 1 else 0


def thread_registers(t: Tiling, gpu: Gpu) -> int:
    """Return the registers that a thread can have; on gfx942 eight warps get half of the maximum each."""
    return min(gpu.registers, gpu.unit_registers // (gpu.warp_size * t.warps))


def estimate_s(t: Tiling, p: Product, gpu: Gpu) -> float:
    """Estimate the seconds without a trial."""
    tiles, steps = t.tiles(p) * t.split, -(-p.k // (t.block_k * t.split))
    held = _resident(t, p, gpu)
    at_once = min(held, -(-tiles // gpu.units))
    left, right = p.read
    fetched = (t.block_m * left + t.block_n * right) * t.block_k
    instruction_s = INSTRUCTION_FLOP * gpu.units / gpu.matmul_flop_s
    compute_s = 2 * t.block_m * t.block_n * t.block_k / (_rate(t, p, gpu) / gpu.units)
    compute_s += (t.block_m * p.left_work + t.block_n * p.right_work) * t.block_k * instruction_s
    fetch_s = fetched / (gpu.l2_reuse * gpu.l2_bytes_s / min(tiles, gpu.units))
    if is_unaligned(p, gpu):
        compute_s = compute_s / APART + LOAD_WORK * (t.block_m + t.block_n) * t.block_k * instruction_s
        compute_s = APART_S + compute_s * (CROWDED if accumulators(t, gpu) > 64 else 1)
    ahead_s = (LATENCIES * gpu.latency_s + TRANSFER * fetch_s) / ((t.stages - 1) * at_once)
    step_s = gpu.step_s / at_once + max(compute_s, fetch_s, ahead_s) + UNHIDDEN * ahead_s
    ends_s = gpu.latency_s * (NEXT_TILE if t.persistent else 1.0) / at_once
    write_s = t.block_m * t.block_n * p.result_bytes / (gpu.memory_bytes_s / gpu.units)
    ends_s += write_s * (NEXT_WRITE if t.persistent else 1.0)
    ends_s += t.block_m * t.block_n * p.result_work * instruction_s
    spilled = spill_bytes(t, p, gpu) * gpu.warp_size * t.warps
    ends_s += 2 * spilled / (gpu.l2_reuse * gpu.l2_bytes_s / gpu.units)  # stored and loaded again
    busiest = -(-tiles // gpu.units)
    total = max(busiest * (steps * step_s + ends_s), _memory_bytes(t, p, gpu, held) / gpu.memory_bytes_s)
    if t.split > 1:
        total += 2 * gpu.launch_s + (8 * t.split + p.result_bytes) * p.batch * p.m * p.n / gpu.memory_bytes_s
    return total + gpu.launch_s


def is_unaligned(p: Product, gpu: Gpu) -> bool:
    """Return whether factors pass through registers only because of their alignment in memory.

    This is for the one kind of GPU on which it was measured, and for factors that are not computed in the
    kernel.
    """
    return not p.direct and p.matrix and gpu.arch == 90 and not p.left_bytes and not p.right_bytes


def _resident(t: Tiling, p: Product, gpu: Gpu) -> int:
    """Return the programs that a unit holds at a time."""
    if t.persistent:
        return 1
    values = registers(t, p, gpu) + _beside(t, p, gpu)
    used = min(thread_registers(t, gpu), 48 + values * (1 if p.matrix else 2))
    return resident(used, t.warps, shared_bytes(t, p, gpu), gpu)


def _rate(t: Tiling, p: Product, gpu: Gpu) -> float:
    """Return the FLOP/s of a tile's instructions on all units."""
    if not p.matrix:
        return gpu.fma_part * p.flop_s(gpu)
    rate = p.flop_s(gpu)
    if gpu.has_groups and t.block_m < 64:
        rate *= gpu.mma_sync
    narrow = min(t.block_n, 128) if gpu.has_groups else min(t.block_m, t.block_n, 64) * 2
    return rate * 2 * narrow / (64 + narrow) * (FULL if narrow >= 64 else NARROW)


def _memory_bytes(t: Tiling, p: Product, gpu: Gpu, held: int) -> float:
    """Return the bytes that all waves read and write; a wave reads each byte once for all of its tiles."""
    rows, columns = -(-p.m // t.block_m), -(-p.n // t.block_n)
    wave = min(gpu.units * held, rows * columns)
    group = min(t.group, rows)
    read = min(rows, group) * t.block_m + min(columns, -(-wave // group)) * t.block_n
    waves = max(1.0, rows * columns / wave)
    left, right = p.read
    once = p.m * p.k + p.n * p.k
    fits = 2 * once * p.element_bytes <= gpu.l2_bytes
    again = 1.0 if fits else max(1.0, min(waves * read * p.k / once, 8.0))
    return p.batch * (again * (p.m * left + p.n * right) * p.k + p.m * p.n * p.result_bytes)
