"""How attention is cut into blocks: the legal configurations in closed form, and an estimate of the time of each.

A program keeps a block of its own rows (queries; of ``dkdv`` keys) and lets blocks of the others pass by. The estimate
counts matrix instructions, exponentials with what stands around them (some of which overlap), and what is fetched from
L2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from shardc.backends.triton.matmul_model import LATENCY_S, LAUNCH_S, REGISTERS, STEP_S
from shardc.backends.triton.targets import Target

PRODUCTS = {"forward": (1, 1), "dq": (2, 1), "dkdv": (2, 2)}
"""Matrix products of a block of scores: over the size of a key, and over that of a value."""
SIZES = (16, 32, 64, 128)
"""Of a block of queries or keys."""
RESERVED_BYTES = 1024
"""Of shared memory, for barriers."""


@dataclass(frozen=True)
class Scores:
    """What is computed: scores of ``queries`` by ``keys`` (``seen``: the part of them that causality leaves) for so
    many heads.

    ``programs``: heads over which programs are counted (of ``dkdv`` those of keys). ``size`` and ``value_size`` are
    padded.
    ``matrix``: matrix instructions multiply.
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


@dataclass(frozen=True)
class Blocks:
    """One configuration; ``#kern.config`` says ``forward_queries``, ``dq_keys``, ``dkdv_warps``, ..."""

    queries: int
    keys: int
    warps: int
    stages: int


def shared_bytes(b: Blocks, s: Scores, target: Target) -> int:
    """What a program takes of shared memory: its own rows, and a block of the others for each stage (less on sm_80,
    where products read registers). On AMD its own rows are in registers.
    """
    row = (s.size + s.value_size) * s.element_bytes
    own, others = (b.keys, b.queries) if s.kind == "dkdv" else (b.queries, b.keys)
    if target.backend == "hip":
        return b.stages * others * row
    stages = b.stages if target.arch in (90, 100) else b.stages - 0.75
    if s.kind == "forward":
        return int(stages * others * row) + own * s.size * s.element_bytes
    scores = b.queries * b.keys * s.element_bytes * (target.arch == 100)
    return int(stages * others * row) + own * row + scores


def accumulators(b: Blocks, s: Scores, target: Target) -> int:
    """Registers of a thread that hold scores and sums."""
    scores, size = b.queries * b.keys, s.size + s.value_size
    held = {
        "forward": scores + b.queries * s.value_size,
        "dq": 2 * scores + b.queries * s.size,
        "dkdv": 2 * scores + b.keys * size,
    }
    return held[s.kind] // (target.warp_size * b.warps)


def is_legal(b: Blocks, s: Scores, target: Target) -> bool:
    """Whether it fits into shared memory and registers, as measured by compiling."""
    return _too_much(b, s, target) is None


def _too_much(b: Blocks, s: Scores, target: Target) -> str | None:
    if (needed := RESERVED_BYTES + shared_bytes(b, s, target)) > target.shared_bytes:
        return f"{b.stages} stages take {needed} bytes of shared memory of {target.shared_bytes}"
    if target.backend == "hip" and s.kind == "dkdv" and (b.queries > 32 or (b.keys < 32 and s.keys > 16)):
        return f"{b.queries} queries by {b.keys} keys: blocks of queries pass through registers, too"
    if target.arch in (90, 100) and s.kind == "dkdv" and b.queries > 32 and b.stages > 2:
        return f"{b.queries} queries in {b.stages} stages: both loops over queries keep their addresses"
    held = accumulators(b, s, target)
    if held > (limit := _limit(s, b, target)):
        return f"a thread holds {held} scores and sums, at most {limit}"
    if (passing := _passing(b, s, target)) and held + passing > (limit := _wide_limit(s, target)):
        return f"a thread holds {held} scores and sums and {passing} factors of 4 bytes, at most {limit}"
    return None


def _passing(b: Blocks, s: Scores, target: Target) -> int:
    """Registers of a thread for a block of the rows that pass by: in tf32 they are factors of products both ways."""
    if s.element_bytes < 4 or not s.matrix or s.kind == "forward" or target.backend == "hip":
        return 0
    others = b.queries if s.kind == "dkdv" else b.keys
    return others * (s.size + s.value_size) // (target.warp_size * b.warps)


def _wide_limit(s: Scores, target: Target) -> int:
    """Of these with scores and sums (measured by compiling, heads of 64: ``dkdv`` spills nothing with 112, 40 bytes with 128
    and 112 to 1320 from 160 on; ``dq`` on sm_80 nothing with 64, 40 to 144 with 80, elsewhere at most 8 with 144 and up
    to 128 with 160). Larger heads on sm_80 fit in no blocks that hold so little.
    """
    if s.kind == "dkdv":
        return 120
    return 64 if target.arch == 80 and s.size + s.value_size <= 128 else 144


def refusal(b: Blocks, s: Scores, target: Target) -> str | None:
    """Why blocks are illegal, or not worth a trial; None if they may be."""
    most = [[n for n in SIZES if n < 2 * max(16, size)][-1] for size in (s.queries, s.keys)]
    for name, block, size, limit in (
        ("queries", b.queries, s.queries, most[0]),
        ("keys", b.keys, s.keys, most[1]),
    ):
        if block > limit:
            return f"blocks of {block} {name}, of which there are {size}"
    if b.queries * b.keys < 512 and [b.queries, b.keys] != most:
        return f"blocks of {b.queries * b.keys} scores"
    return _too_much(b, s, target)


def _limit(s: Scores, b: Blocks, target: Target) -> int:
    if not s.matrix:
        return 32
    if target.backend == "hip":
        return {"forward": 40, "dq": 48, "dkdv": 80}[s.kind]
    if s.kind == "dkdv":
        return 96 if s.size + s.value_size <= 128 else 80
    if target.arch == 100:
        return 80 if b.warps == 4 else 96
    return 128


@lru_cache(maxsize=256)
def blocks(s: Scores, target: Target) -> tuple[Blocks, ...]:
    """The legal set."""
    found = (Blocks(*values) for values in product(SIZES, SIZES, *candidates_of(target)))
    return tuple(b for b in found if refusal(b, s, target) is None)


def candidates_of(target: Target) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Warps and stages. On AMD loads of several stages pass through registers, of which 8 warps have half as many."""
    return ((4,), (1,)) if target.backend == "hip" else ((4, 8), (2, 3, 4))


def estimate_s(b: Blocks, s: Scores, target: Target) -> float:
    """Seconds, as far as can be said without a trial."""
    clock = target.l2_bytes_s / (64 * target.units)
    own, others = (b.keys, b.queries) if s.kind == "dkdv" else (b.queries, b.keys)
    own_rows, other_rows = (s.keys, s.queries) if s.kind == "dkdv" else (s.queries, s.keys)
    programs = s.programs * -(-own_rows // own)
    steps = max(1.0, s.seen * -(-other_rows // others)) * s.heads / s.programs
    over_size, over_value = PRODUCTS[s.kind]
    flops = 2 * b.queries * b.keys * (over_size * s.size + over_value * s.value_size)
    rate = target.matmul_flop_s * (2 / s.element_bytes if s.matrix else 1 / 16) / target.units
    if target.arch in (90, 100) and own < 64:
        rate *= 0.6  # mma.sync instead of wgmma
    multiply_s, score_s = flops / (0.8 * rate), b.queries * b.keys / 8 / clock
    fetch_s = others * (s.size + s.value_size) * s.element_bytes / (0.7 * 64 * clock)
    resident = _resident(b, s, target)
    at_once = min(resident, -(-programs // target.units))
    overlap = 0.5 if at_once * b.warps >= 8 else 1.0
    step_s = max(multiply_s, score_s, fetch_s) + overlap * min(multiply_s, score_s)
    step_s = max(step_s, 2 * LATENCY_S / (max(1, b.stages - 1) * at_once)) + STEP_S / at_once
    return LAUNCH_S + -(-programs // target.units) * (steps * step_s + LATENCY_S / at_once)


def _resident(b: Blocks, s: Scores, target: Target) -> int:
    """Programs that a unit holds at a time."""
    registers = min(target.registers, 64 + accumulators(b, s, target))
    by_registers = REGISTERS * (target.warp_size // 32) // (registers * target.warp_size * b.warps)
    by_shared = target.shared_bytes // (RESERVED_BYTES + shared_bytes(b, s, target))
    return max(1, min(by_registers, by_shared, 8))


@lru_cache(maxsize=256)
def choose(s: Scores, target: Target) -> Blocks:
    """The legal blocks of the smallest estimate; of equal ones the first."""
    return min(blocks(s, target), key=lambda b: estimate_s(b, s, target))


def configured(chosen: Blocks, kind: str, values: Mapping[str, int]) -> Blocks:
    """What ``#kern.config`` says, for the rest what was chosen."""
    names = ("queries", "keys", "warps", "stages")
    return replace(chosen, **{n: values[f"{kind}_{n}"] for n in names if f"{kind}_{n}" in values})


def flops_of(s: Scores) -> int:
    """Of the matrix products of the scores that are seen."""
    over_size, over_value = PRODUCTS[s.kind]
    return int(2 * s.seen * s.heads * s.queries * s.keys * (over_size * s.size + over_value * s.value_size))


def flop_rate(s: Scores, target: Target) -> float:
    """Floating-point operations a second of the units that can multiply such elements."""
    return target.matmul_flop_s * (2 / s.element_bytes if s.matrix else 1 / 16)
