"""Matmuls of experts: rows that are sorted by expert, each times the matrix of its own. How many rows each has is
computed.

``ends[e]`` is the number of the row behind the last one of expert ``e``, and 0 or ``ends[e - 1]`` that of its first:
the convention of ``torch._grouped_mm``. Nothing waits for the counts: there are programs for the most blocks of rows
that there can be, each finds its expert from all counts, and those that are left over do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.backends.triton.config import power_of_two
from shardc.backends.triton.emitted import Emitted
from shardc.backends.triton.matmul_model import Product, Tiling, estimate_s, tilings
from shardc.backends.triton.memory import Memory, Pointer
from shardc.backends.triton.module import Module, Part
from shardc.backends.triton.reduce import Joins
from shardc.backends.triton.targets import Target
from shardc.backends.triton.text import VALUES, Names

BYTES = {"f16": 2, "bf16": 2, "f32": 4}


@dataclass(frozen=True)
class Experts:
    """``rows`` rows of ``k`` elements of MLIR's type ``element``, and for each of ``experts`` a matrix ``[k, n]``,
    ``[n, k]`` if ``turned``.
    """

    name: str
    experts: int
    rows: int
    n: int
    k: int
    element: str
    turned: bool = False


def emit_experts(e: Experts, target: Target, tiling: Tiling | None = None, *, tf32: bool = False) -> Emitted:
    """``launch(x, w, ends, out)``: ``out[r] = x[r] @ w[expert of r]``. Rows that no expert has are not written."""
    pointers = [Pointer("x_ptr", "x", e.element), Pointer("w_ptr", "w", e.element), Pointer("ends_ptr", "ends", "i32")]
    t = tiling or _tiling(e, (-(-e.rows // e.experts), e.n, e.k), target, tf32)
    weight = "n[None, :] * K + k[:, None]" if e.turned else "k[:, None] * N + n[None, :]"
    lines = [
        "columns = tl.cdiv(N, BLOCK_N)",
        "block = tl.program_id(0) // columns",
        "n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)",
        *_ranges(e),
        "# Each expert's rows begin a block: blocks of the experts up to each, and which of them this one is among",
        "blocks = tl.cdiv(ends - starts, BLOCK_M)",
        "behind = tl.cumsum(blocks)",
        "expert = tl.sum((behind <= block).to(tl.int32))",
        "first = tl.sum(tl.where(e == expert, starts + (block - behind + blocks) * BLOCK_M, 0))",
        "end = tl.sum(tl.where(e == expert, ends, 0))",
        "m = first + tl.arange(0, BLOCK_M)",
        "matrix_ptr = w_ptr + expert.to(tl.int64) * (N * K)",
        "total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)",
        "for start in tl.range(0, tl.where(expert < EXPERTS, K, 0), BLOCK_K):",
        "    k = start + tl.arange(0, BLOCK_K)",
        "    left = tl.load(x_ptr + m[:, None].to(tl.int64) * K + k[None, :], mask=(m[:, None] < end) & (k[None, :] < K), other=0.0)",
        f"    right = tl.load(matrix_ptr + {weight}, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)",
        f"    total = tl.dot(left, right, total{_precision(e)})",
        "inside = (m[:, None] < end) & (n[None, :] < N)",
        f"tl.store(out_ptr + m[:, None].to(tl.int64) * N + n[None, :], total.to({VALUES[e.element]}), mask=inside)",
    ]
    constants = {"BLOCK_M": t.block_m, "BLOCK_N": t.block_n, "BLOCK_K": t.block_k, "BLOCK_E": power_of_two(e.experts)}
    grid = f"((triton.cdiv({e.rows}, BLOCK_M) + {e.experts}) * triton.cdiv({e.n}, BLOCK_N),)"
    says = "A program: a tile of the rows of one expert."
    return _module(e, pointers, Part(e.name, lines, constants, grid, t.warps, says, t.stages), tf32)


def emit_experts_gradient(e: Experts, target: Target, tiling: Tiling | None = None, *, tf32: bool = False) -> Emitted:
    """``launch(x, g, ends, out)``: the gradients of the matrices, ``out[expert] = x[its rows].T @ g[its rows]``,
    0 where there are none.
    """
    pointers = [Pointer("x_ptr", "x", e.element), Pointer("g_ptr", "g", e.element), Pointer("ends_ptr", "ends", "i32")]
    t = tiling or _tiling(e, (e.k, e.n, -(-e.rows // e.experts)), target, tf32)
    at = "n[None, :] * K + k[:, None]" if e.turned else "k[:, None] * N + n[None, :]"
    lines = [
        "columns = tl.cdiv(N, BLOCK_N)",
        "tiles = tl.cdiv(K, BLOCK_M) * columns",
        "expert = tl.program_id(0) // tiles",
        "k = tl.program_id(0) % tiles // columns * BLOCK_M + tl.arange(0, BLOCK_M)",
        "n = tl.program_id(0) % tiles % columns * BLOCK_N + tl.arange(0, BLOCK_N)",
        "first = tl.load(ends_ptr + expert - 1, mask=expert > 0, other=0)",
        "end = tl.load(ends_ptr + expert)",
        "total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)",
        "for start in tl.range(first, end, BLOCK_K):",
        "    m = start + tl.arange(0, BLOCK_K)",
        "    left = tl.load(x_ptr + m[None, :].to(tl.int64) * K + k[:, None], mask=(m[None, :] < end) & (k[:, None] < K), other=0.0)",
        "    right = tl.load(g_ptr + m[:, None].to(tl.int64) * N + n[None, :], mask=(m[:, None] < end) & (n[None, :] < N), other=0.0)",
        f"    total = tl.dot(left, right, total{_precision(e)})",
        "inside = (k[:, None] < K) & (n[None, :] < N)",
        f"tl.store(out_ptr + expert.to(tl.int64) * (N * K) + {at}, total.to({VALUES[e.element]}), mask=inside)",
    ]
    constants = {"BLOCK_M": t.block_m, "BLOCK_N": t.block_n, "BLOCK_K": t.block_k}
    grid = f"({e.experts} * triton.cdiv({e.k}, BLOCK_M) * triton.cdiv({e.n}, BLOCK_N),)"
    says = "A program: a tile of the gradient of one expert's matrix, from the rows that it has."
    return _module(e, pointers, Part(e.name, lines, constants, grid, t.warps, says, t.stages), tf32)


def _ranges(e: Experts) -> list[str]:
    """The lines that load where each expert's rows begin and end; experts beyond the last have none."""
    return [
        "e = tl.arange(0, BLOCK_E)",
        "ends = tl.load(ends_ptr + e, mask=e < EXPERTS, other=0)",
        "starts = tl.load(ends_ptr + e - 1, mask=(e > 0) & (e < EXPERTS), other=0)",
    ]


def _precision(e: Experts) -> str:
    return ", input_precision=PRECISION" if e.element == "f32" else ""


def _tiling(e: Experts, sizes: tuple[int, int, int], target: Target, tf32: bool) -> Tiling:
    """The tiles that would be the best if all experts had as many rows."""
    m, n, k = sizes
    product = Product(e.experts, m, n, k, BYTES[e.element], BYTES[e.element], e.element != "f32" or tf32)
    whole = [t for t in tilings(product, target) if t.split == 1 and not t.persistent]
    return min(whole, key=lambda t: estimate_s(t, product, target))


def _module(e: Experts, pointers: list[Pointer], part: Part, tf32: bool) -> Emitted:
    out = Pointer("out_ptr", "out", e.element)
    memory = Memory(Names(p.name for p in (*pointers, out)), pointers, {0: out}, [out], [])
    module = Module(e.name, f"{e.name}: {e.rows} rows of {e.experts} experts.", memory, Joins(), frozenset())
    module.sizes = [f"EXPERTS = tl.constexpr({e.experts})", f"N = tl.constexpr({e.n})", f"K = tl.constexpr({e.k})"]
    if e.element == "f32":
        module.sizes.append(
            f'PRECISION = tl.constexpr("{"tf32" if tf32 else "ieee"}")  # of products, as torch was set'
        )
    module.parts = [part]
    module.aligned = frozenset(p.name for p in memory.pointers)
    return module.finish("matmul")
