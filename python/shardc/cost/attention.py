"""Legal block configurations of attention kernels on GPUs, and estimates of their times.

A program keeps a block of its own rows (queries, or keys for ``dkdv``) and loops over blocks of the other
rows. The estimate counts matrix instructions, exponentials with the work around them (partly overlapped), and
L2 fetches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Annotated

from shardc.cost.kernel import resident
from shardc.cost.machine import Gpu
from shardc.cost.origin import Measured, Sheet

PRODUCTS = {"forward": (1, 1), "dq": (2, 1), "dkdv": (2, 2)}
"""Matrix products for a block of scores: those over the size of a key, and those over that of a value."""
SIZES = (16, 32, 64, 128)
"""Sizes of a block of queries or keys."""
_RUN = Measured("105 configurations on an H200", "decision 112")
REACHED: Annotated[float, _RUN] = 0.65
"""Share of the matrix units' rate that products of blocks reach."""
SCORES_A_CLOCK: Annotated[float, _RUN] = 6.6
"""Scores of a block that a unit turns into weights per clock."""
ROWS_A_WARP: Annotated[int, Sheet("PTX: wgmma of a warpgroup has 64 rows")] = 16
"""Rows of a block that a warp multiplies on sm_90: 64 for a group of four warps.

If a block has fewer rows, warps repeat the work of others (on an H200, 8 warps on 64 rows take 1.8 times as
long as 4).
"""
L2_PART: Annotated[float, _RUN] = 0.39
"""Share of L2's peak rate that blocks get."""
APART: Annotated[tuple[float, float, float], _RUN] = (0.12, 0.24, 1.0)
"""Share of the shorter of products and exponentials that does not overlap with the longer.

The values are for several programs per unit, for one program of eight warps, and for one of four.
"""
EXPOSED: Annotated[float, _RUN] = 0.43
"""Latencies that a step waits for its loads, divided by the stages ahead of it."""
STEP_S: Annotated[float, _RUN] = 2e-7
"""Overhead of a step at its start and end."""
CROWDED: Annotated[float, _RUN] = 0.15
"""Added share of a step's time for each 96 scores and sums that a thread holds beyond 96."""


@dataclass(frozen=True)
class Scores:
    """Sizes of an attention's scores: ``queries`` by ``keys`` for each head.

    ``seen``: the share that the causal mask leaves. ``programs``: heads over which programs are counted (for
    ``dkdv`` the heads of keys). ``size`` and ``value_size`` are padded. ``matrix``: whether matrix
    instructions multiply.
    """

    kind: str
    heads: int
    programs: int
    queries: int
    keys: int
    size: int
    value_size: int
    element_bytes: int
    seen: float = 1.0
    matrix: bool = True

    @property
    def flops(self) -> int:
        """Return the FLOP of the matrix products for the unmasked scores."""
        return int(2 * self.seen * self.heads * self.queries * self.keys * self.terms)

    @property
    def terms(self) -> int:
        """Return the number of products for each score."""
        over_size, over_value = PRODUCTS[self.kind]
        return over_size * self.size + over_value * self.value_size

    def flop_s(self, gpu: Gpu) -> float:
        """Return the rate of the units that multiply such elements."""
        return gpu.flop_s(self.element_bytes, self.matrix)


@dataclass(frozen=True)
class Blocks:
    """One configuration.

    ``#kern.config`` names its fields ``forward_queries``, ``dq_keys``, ``dkdv_warps``, ...
    """

    queries: int
    keys: int
    warps: int
    stages: int


def shared_bytes(b: Blocks, s: Scores, gpu: Gpu) -> int:
    """Return the shared memory of a program: its own rows, and a block of the other rows for each stage.

    sm_80 needs less, since its products read registers. On AMD the program's own rows are in registers.
    """
    row = (s.size + s.value_size) * s.element_bytes
    own, others = (b.keys, b.queries) if s.kind == "dkdv" else (b.queries, b.keys)
    if gpu.backend == "hip":
        return b.stages * others * row
    stages = b.stages if gpu.has_groups else b.stages - 0.75
    if s.kind == "forward":
        return int(stages * others * row) + own * s.size * s.element_bytes
    scores = b.queries * b.keys * s.element_bytes * (gpu.arch == 100)
    return int(stages * others * row) + own * row + scores


def accumulators(b: Blocks, s: Scores, gpu: Gpu) -> int:
    """Return the registers of a thread that hold scores and sums."""
    scores, size = b.queries * b.keys, s.size + s.value_size
    held = {"forward": scores + b.queries * s.value_size, "dq": 2 * scores + b.queries * s.size}
    held["dkdv"] = 2 * scores + b.keys * size
    return held[s.kind] // (gpu.warp_size * b.warps)


def excess(b: Blocks, s: Scores, gpu: Gpu) -> str | None:
    """Say why blocks do not fit into shared memory or registers, as measured by compiling; None if they do.

    On sm_90 some configurations that spill are by far the fastest (on an H200, 64 queries by 64 keys with
    heads of 128 take half the time of those that do not spill). The limit there was measured by running.
    """
    if (needed := gpu.reserved_bytes + shared_bytes(b, s, gpu)) > gpu.shared_bytes:
        return f"{b.stages} stages take {needed} bytes of shared memory of {gpu.shared_bytes}"
    if gpu.backend == "hip" and s.kind == "dkdv" and (b.queries > 32 or (b.keys < 32 and s.keys > 16)):
        return f"{b.queries} queries by {b.keys} keys: blocks of queries pass through registers, too"
    if gpu.arch == 100 and s.kind == "dkdv" and b.queries > 32 and b.stages > 2:
        return f"{b.queries} queries in {b.stages} stages: both loops over queries keep their addresses"
    held = accumulators(b, s, gpu)
    if held > (limit := _limit(s, b, gpu)):
        return f"a thread holds {held} scores and sums, at most {limit}"
    if (passing := _passing(b, s, gpu)) and held + passing > (limit := _wide_limit(s, gpu)):
        return f"a thread holds {held} scores and sums and {passing} factors of 4 bytes, at most {limit}"
    return None


def _passing(b: Blocks, s: Scores, gpu: Gpu) -> int:
    """Return a thread's registers for the rows that pass by.

    In tf32 they are factors of products both ways.
    """
    if s.element_bytes < 4 or not s.matrix or s.kind == "forward" or gpu.backend == "hip":
        return 0
    others = b.queries if s.kind == "dkdv" else b.keys
    return others * (s.size + s.value_size) // (gpu.warp_size * b.warps)


def _wide_limit(s: Scores, gpu: Gpu) -> int:
    """Return the limit of such registers together with scores and sums.

    Measured by compiling with heads of 64: ``dkdv`` spills nothing with 112 registers, 40 bytes with 128, and
    112 to 1320 bytes from 160 on. ``dq`` on sm_80 spills nothing with 64 and 40 to 144 bytes with 80;
    elsewhere at most 8 bytes with 144 and up to 128 with 160. Larger heads on sm_80 fit in no blocks that
    hold so little.
    """
    if s.kind == "dkdv":
        return 120
    return 64 if gpu.arch == 80 and s.size + s.value_size <= 128 else 144


def refusal(b: Blocks, s: Scores, gpu: Gpu) -> str | None:
    """Say why blocks are illegal or not worth a trial; None if they are allowed."""
    most = [[n for n in SIZES if n < 2 * max(16, size)][-1] for size in (s.queries, s.keys)]
    both = (("queries", b.queries, s.queries), ("keys", b.keys, s.keys))
    for (name, block, size), limit in zip(both, most, strict=True):
        if block > limit:
            return f"blocks of {block} {name}, of which there are {size}"
    if b.queries * b.keys < 512 and [b.queries, b.keys] != most:
        return f"blocks of {b.queries * b.keys} scores"
    if gpu.arch == 90 and _own(b, s) > ROWS_A_WARP * b.warps:
        return f"{b.warps} warps on a block of {_own(b, s)} rows"
    return excess(b, s, gpu)


def _own(b: Blocks, s: Scores) -> int:
    """Return the rows of the block that a program keeps."""
    return b.keys if s.kind == "dkdv" else b.queries


def _limit(s: Scores, b: Blocks, gpu: Gpu) -> int:
    if not s.matrix:
        return 32
    if gpu.backend == "hip":
        return {"forward": 40, "dq": 48, "dkdv": 80}[s.kind]
    if gpu.arch == 90 and s.element_bytes < 4:
        return 192
    if s.kind == "dkdv":
        return 96 if s.size + s.value_size <= 128 else 80
    if gpu.arch == 100:
        return 80 if b.warps == 4 else 96
    return 128


@lru_cache(maxsize=256)
def blocks(s: Scores, gpu: Gpu) -> tuple[Blocks, ...]:
    """Return the legal configurations."""
    found = (Blocks(*values) for values in product(SIZES, SIZES, *candidates_of(gpu)))
    return tuple(b for b in found if refusal(b, s, gpu) is None)


def candidates_of(gpu: Gpu) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return candidates of warps and stages.

    On AMD stages use registers, of which 8 warps have half as many.
    """
    return ((4,), (1,)) if gpu.backend == "hip" else ((4, 8), (2, 3, 4))


def estimate_s(b: Blocks, s: Scores, gpu: Gpu) -> float:
    """Estimate the seconds without a trial."""
    clock = gpu.l2_bytes_s / (64 * gpu.units)
    own, others = (b.keys, b.queries) if s.kind == "dkdv" else (b.queries, b.keys)
    own_rows, other_rows = (s.keys, s.queries) if s.kind == "dkdv" else (s.queries, s.keys)
    programs = s.programs * -(-own_rows // own)
    steps = max(1.0, s.seen * -(-other_rows // others)) * s.heads / s.programs
    flops = 2 * b.queries * b.keys * s.terms
    rate = s.flop_s(gpu) / gpu.units
    if gpu.has_groups and own < 64:
        rate *= gpu.mma_sync
    elif gpu.arch == 90:
        rate *= min(1.0, own / (ROWS_A_WARP * b.warps))
    multiply_s, score_s = flops / (REACHED * rate), b.queries * b.keys / SCORES_A_CLOCK / clock
    fetch_s = others * (s.size + s.value_size) * s.element_bytes / (L2_PART * 64 * clock)
    used = min(gpu.registers, 64 + accumulators(b, s, gpu))
    held = resident(used, b.warps, shared_bytes(b, s, gpu), gpu)
    at_once = min(held, -(-programs // gpu.units))
    apart = APART[0] if at_once > 1 else APART[1] if b.warps > 4 else APART[2]
    step_s = max(multiply_s, score_s, fetch_s) + apart * min(multiply_s, score_s)
    step_s = max(step_s, EXPOSED * gpu.latency_s / (max(1, b.stages - 1) * at_once))
    step_s += STEP_S / at_once
    step_s *= 1 + CROWDED * max(0, accumulators(b, s, gpu) - 96) / 96
    return gpu.launch_s + -(-programs // gpu.units) * (steps * step_s + gpu.latency_s / at_once)


@lru_cache(maxsize=256)
def choose(s: Scores, gpu: Gpu) -> Blocks:
    """Return the legal blocks with the smallest estimate; among equal ones those nearest to three stages."""
    return min(blocks(s, gpu), key=lambda b: estimate_s(b, s, gpu) * (1 + 0.01 * abs(b.stages - 3)))
