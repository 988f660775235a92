"""How a matmul is cut into tiles: the legal configurations in closed form, and an estimate of the time of each.

The estimate counts, for the unit (streaming multiprocessor) that has the most tiles, the matrix instructions, the bytes
that tiles fetch from L2, and the latency that the stages of a tile's pipeline do not hide; and, for the whole GPU, the
bytes that come from memory when so many tiles at a time share what they read. The form is that of Swann et al.,
tritonBLAS (2025, arXiv 2512.04226): everything follows from the shape and a handful of figures of the GPU.

Registers that a thread spills while it writes a tile are stored and loaded again, once, at the rate at which tiles get
bytes from L2. That is an assumption, of which nothing was measured on a GPU: buffers of factors leave little of the
memory that is both L1 and shared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from shardc.backends.triton.targets import Target

LATENCY_S = 0.8e-6
"""Of a read from memory, and of starting and ending a tile."""
STEP_S = 2e-8
"""Of a step along the sum besides its arithmetic: barriers, addresses."""
LAUNCH_S = 3e-6
"""Of a kernel behind another one."""
L2_REUSE = 0.7
"""Part of what L2 could deliver that tiles get."""
REGISTERS = 65536
"""Of a unit, of 32 bits."""
OTHERS, MASKS = 49, 24
"""Registers of a thread that hold neither sums nor what lives with them (measured by compiling): addresses; and what is
not copied 16 bytes at a time also has masks.
"""
SPILL_BOUND = 2
"""Measured spills, at most, of those estimated (decision 57)."""
FMA_RATE = 0.5
"""Part of the plain units' rate that products get which are no matrix instructions: half of the instructions load."""
FMA_BLOCK = 4096
"""Elements of a tile, at most, of products that are no matrix instructions,
and so are held in registers with their operands."""

BLOCKS, DEPTHS = (16, 32, 64, 128, 256), (16, 32, 64, 128)
WARPS, STAGES, GROUPS, SPLITS = (1, 2, 4, 8), (2, 3, 4, 5), (1, 2, 4, 8, 16), (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Product:
    """What is multiplied: sizes, and bytes of an element of the factors (as they are multiplied) and of all that is
    read and written for an element of the result. ``matrix``: matrix instructions multiply it (not so f32 without tf32,
    and f64).
    ``direct``: factors are copied to shared memory as they lie, past the registers, 16 bytes at a time.
    ``finish_bytes``: of shared memory for an element of a tile while it is written, in the order in which threads hold
    what they read and write.
    ``by_descriptor``: both factors can be read by tensor descriptors, without which loops over tiles take too many
    registers. ``left_bytes`` and ``right_bytes``: of what an element of a factor is made from, if it is computed where
    it is multiplied, and ``left_work`` and ``right_work`` the instructions that this takes; ``result_work``: those of
    an element of what is made of the result; ``beside``: registers of what lives with each sum while that is computed.
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
        """Bytes in memory of what an element of each factor is made from."""
        return self.left_bytes or self.element_bytes, self.right_bytes or self.element_bytes


@dataclass(frozen=True)
class Tiling:
    """One configuration. ``group`` rows of tiles run together; ``split`` programs share the terms of a sum;
    ``persistent``: each unit has one program, which takes tile after tile. Names are those of ``#kern.config``.
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


def shared_bytes(t: Tiling, p: Product, target: Target) -> int:
    """What a program takes of shared memory: a buffer a stage, of which sm_80 and AMD, where products read registers,
    need one less.
    """
    stages = t.stages if target.arch in (90, 100) else max(1, t.stages - 1)
    bytes_ = stages * (t.block_m + t.block_n) * t.block_k * p.element_bytes
    if (
        p.element_bytes == 4 and target.arch == 100
    ):  # tensor cores of sm_100 take tf32 with the terms side by side: turned copies
        bytes_ += 2 * max(t.block_m, t.block_n) * t.block_k * p.element_bytes
    if t.persistent:  # the next tile is loaded while this one is written
        bytes_ += t.block_m * t.block_n * p.finish_bytes
    return bytes_


def accumulators(t: Tiling, target: Target) -> int:
    """Registers of a thread that hold the sums."""
    return t.block_m * t.block_n // (target.warp_size * t.warps)


def registers(t: Tiling, p: Product, target: Target) -> int:
    """Those of a thread for sums, and for factors that pass through them, while products are added up."""
    passing = 0 if p.direct else (t.block_m + t.block_n) * t.block_k // (target.warp_size * t.warps)
    return accumulators(t, target) + passing


def spill_bytes(t: Tiling, p: Product, target: Target) -> int:
    """Of a thread, once a tile: what of the sums and of what lives with them has no register while the tile is written
    (measured by compiling: decision 57). What would be spilled at every step along the sum is refused instead.
    """
    if t.split > 1:
        return 0
    others = OTHERS if p.direct else OTHERS + MASKS
    return 4 * max(0, registers(t, p, target) + _beside(t, p, target) + others - _thread_registers(t, target))


def _beside(t: Tiling, p: Product, target: Target) -> int:
    """Registers of a thread for what lives with its sums; parts of sums are written as they are."""
    return int(accumulators(t, target) * p.beside) if t.split == 1 else 0


def _thread_registers(t: Tiling, target: Target) -> int:
    """That a thread can have: on gfx942 eight warps have half of the instruction set's each."""
    return min(target.registers, _unit_registers(target) // (target.warp_size * t.warps))


def _unit_registers(target: Target) -> int:
    return REGISTERS * (target.warp_size // 32)


def is_legal(t: Tiling, p: Product, target: Target) -> bool:
    """Whether it fits into shared memory and registers (measured: spills exactly from 256 sums a thread on)."""
    return refusal(t, p, target) is None


def refusal(t: Tiling, p: Product, target: Target) -> str | None:
    """Why it does not fit into shared memory or registers; None if it does. What is spilled once a tile costs time
    (:func:`estimate_s`), and is refused where it is more than half of the registers of a thread.
    """
    if (needed := 1024 + shared_bytes(t, p, target)) > target.shared_bytes:
        return f"{t.stages} stages take {needed} bytes of shared memory of {target.shared_bytes}"
    limit = (256 if p.direct else 224) if target.backend == "cuda" else 96
    if (taken := registers(t, p, target)) >= limit:
        return f"a thread holds {taken} values, and spills from {limit} on"
    if (spilled := spill_bytes(t, p, target)) > (most := 2 * _thread_registers(t, target)):
        return (
            f"a thread spills {spilled} bytes for each tile, and more than {most} are half of its registers"
        )
    if not p.matrix and (t.block_m * t.block_n > FMA_BLOCK or t.block_k > 32):
        return f"without matrix instructions tiles have at most {FMA_BLOCK} elements and 32 terms"
    return None


def waste(t: Tiling, p: Product, target: Target) -> str | None:
    """Why a tiling that fits is not worth a trial; None if it may be."""
    elements, threads = t.block_m * t.block_n, t.warps * target.warp_size
    for name, block, size in (("m", t.block_m, p.m), ("n", t.block_n, p.n), ("k", t.block_k, p.k)):
        if block >= 2 * max(16, size):
            return f"block_{name} = {block} is twice the size {size} or more"
    if t.block_k * p.element_bytes > 256:
        return f"block_k = {t.block_k} is a row of more than 256 bytes"
    if t.stages == 2 and target.arch == 80:
        return "2 stages are one buffer on sm_80: loads wait for products"
    if t.warps > 1 and elements < 4 * threads:
        return f"{threads} threads for {elements} elements"
    if (t.warps < 4 and elements > 32 * 32) or (t.warps == 8 and elements < 64 * 128):
        return f"{t.warps} warps for a tile of {t.block_m} x {t.block_n}"
    if t.split > 1 and (p.k < 4 * t.split * t.block_k or t.tiles(p) * t.split >= 4 * target.units):
        return f"{t.split} parts of {p.k} terms, with {t.tiles(p)} tiles for {target.units} units"
    if t.persistent and not (p.matrix and p.by_descriptor and t.tiles(p) > 2 * target.units):
        return f"a loop over {t.tiles(p)} tiles needs descriptors and more than {2 * target.units} tiles"
    return None


@lru_cache(maxsize=256)
def tilings(p: Product, target: Target) -> tuple[Tiling, ...]:
    """The legal set, without those that only waste: blocks of more than twice a size, splits of few terms."""
    found: list[Tiling] = []
    for m, n, k, warps, stages in product(BLOCKS, BLOCKS, DEPTHS, WARPS, STAGES):
        t = Tiling(m, n, k, warps, stages)
        if waste(t, p, target) is None:
            forms = [replace(t, split=s) for s in SPLITS] + [replace(t, persistent=1)]
            found += [replace(f, group=group_of(f, p, target)) for f in forms if fits(f, p, target)]
    return tuple(found)


def fits(t: Tiling, p: Product, target: Target) -> bool:
    """Whether it is legal, and not only a waste."""
    return waste(t, p, target) is None and is_legal(t, p, target)


def group_of(t: Tiling, p: Product, target: Target) -> int:
    """Rows of tiles for which the tiles that run at a time read the fewest bytes."""
    rows, columns = -(-p.m // t.block_m), -(-p.n // t.block_n)
    wave = min(target.units, rows * columns)
    groups = [g for g in GROUPS if g <= rows] or [1]
    return min(groups, key=lambda g: g * t.block_m + -(-wave // g) * t.block_n)


def estimate_s(t: Tiling, p: Product, target: Target) -> float:
    """Seconds, as far as can be said without a trial."""
    tiles, steps = t.tiles(p) * t.split, -(-p.k // (t.block_k * t.split))
    resident = _resident(t, p, target)
    at_once = min(resident, -(-tiles // target.units))
    left, right = p.read
    fetched = (t.block_m * left + t.block_n * right) * t.block_k
    instruction_s = 32 * target.units / target.matmul_flop_s
    compute_s = 2 * t.block_m * t.block_n * t.block_k / (_rate(t, p, target) / target.units)
    compute_s += (t.block_m * p.left_work + t.block_n * p.right_work) * t.block_k * instruction_s
    fetch_s = fetched / (L2_REUSE * target.l2_bytes_s / min(tiles, target.units))
    step_s = STEP_S / at_once + max(compute_s, fetch_s, 2 * LATENCY_S / ((t.stages - 1) * at_once))
    ends_s = LATENCY_S * (0.25 if t.persistent else 1.0) / at_once
    ends_s += t.block_m * t.block_n * p.result_bytes / (target.memory_bytes_s / target.units)
    ends_s += t.block_m * t.block_n * p.result_work * instruction_s
    spilled = spill_bytes(t, p, target) * target.warp_size * t.warps
    ends_s += 2 * spilled / (L2_REUSE * target.l2_bytes_s / target.units)  # stored and loaded again
    busiest = -(-tiles // target.units)
    total = max(
        busiest * (steps * step_s + ends_s), _memory_bytes(t, p, target, resident) / target.memory_bytes_s
    )
    if t.split > 1:
        total += 2 * LAUNCH_S + (8 * t.split + p.result_bytes) * p.batch * p.m * p.n / target.memory_bytes_s
    return total + LAUNCH_S


def _resident(t: Tiling, p: Product, target: Target) -> int:
    """Programs that a unit holds at a time."""
    if t.persistent:
        return 1
    values = registers(t, p, target) + _beside(t, p, target)
    used = min(_thread_registers(t, target), 48 + values * (1 if p.matrix else 2))
    by_registers = _unit_registers(target) // (used * target.warp_size * t.warps)
    by_shared = target.shared_bytes // (1024 + shared_bytes(t, p, target))
    return max(1, min(by_registers, by_shared, 8))


def _rate(t: Tiling, p: Product, target: Target) -> float:
    """FLOP/s of the instructions that a tile uses, on all units."""
    if not p.matrix:
        return FMA_RATE * target.matmul_flop_s / 16
    rate = target.matmul_flop_s * 2 / p.element_bytes if p.element_bytes <= 4 else target.matmul_flop_s / 16
    if target.arch in (90, 100) and t.block_m < 64:
        rate *= 0.6  # mma.sync instead of wgmma
    narrow = min(t.block_n, 128) if target.arch in (90, 100) else min(t.block_m, t.block_n, 64) * 2
    return rate * 2 * narrow / (64 + narrow) * (0.75 if narrow >= 64 else 0.6)


def _memory_bytes(t: Tiling, p: Product, target: Target, resident: int) -> float:
    """What all waves read from memory, each once for all of its tiles, and what is written."""
    rows, columns = -(-p.m // t.block_m), -(-p.n // t.block_n)
    wave = min(target.units * resident, rows * columns)
    group = min(t.group, rows)
    read = min(rows, group) * t.block_m + min(columns, -(-wave // group)) * t.block_n
    waves = max(1.0, rows * columns / wave)
    left, right = p.read
    once = p.m * p.k + p.n * p.k
    again = (
        max(1.0, min(waves * read * p.k / once, 8.0)) if 2 * once * p.element_bytes > target.l2_bytes else 1.0
    )
    return p.batch * (again * (p.m * left + p.n * right) * p.k + p.m * p.n * p.result_bytes)


@lru_cache(maxsize=256)
def choose(p: Product, target: Target) -> Tiling:
    """The legal tiling of the smallest estimate; of equal ones the first."""
    return min(tilings(p, target), key=lambda t: estimate_s(t, p, target))


def roofline_s(p: Product, target: Target) -> float:
    """What the GPU's rates alone would allow: arithmetic, or each byte once."""
    left, right = p.read
    bytes_ = p.batch * ((p.m * left + p.n * right) * p.k + p.m * p.n * p.result_bytes)
    return max(flops_of(p) / flop_rate(p, target), bytes_ / target.memory_bytes_s)


def flops_of(p: Product) -> int:
    return 2 * p.batch * p.m * p.n * p.k


def flop_rate(p: Product, target: Target) -> float:
    """Floating-point operations a second of the units that can multiply such factors."""
    return target.matmul_flop_s * (2 / p.element_bytes if p.matrix else 1 / 16)
