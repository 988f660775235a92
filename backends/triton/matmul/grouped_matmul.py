"""Triton module of ``kern.grouped_matmul``: experts, whose numbers of rows are known only on the GPU.

The CPU does not wait for these numbers. If the groups divide rows or columns, there are programs for the
largest possible number of blocks: each finds its group from all groups' ends, and the rest do nothing. If
they divide the terms of sums, every group has a program for each tile. ``#kern.config`` may set blocks, warps
and stages.

On sm_90 and sm_100, tensor descriptors read both factors if rows are multiples of 16 bytes and groups begin
at rows. Terms beyond the group's end read as 0. Rows beyond a group's are read but not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from shardc.backends.body.handlers import handles
from shardc.backends.body.structured import Structured
from shardc.backends.triton.config import power_of_two
from shardc.backends.triton.emit.emitted import Emitted
from shardc.backends.triton.emit.memory import Memory, pointer
from shardc.backends.triton.emit.module import Module, Part
from shardc.backends.triton.emit.names import Said
from shardc.backends.triton.emit.text import precision_lines, precision_of
from shardc.backends.triton.matmul.descriptor import ALIGNMENT_BYTES, HAS_DESCRIPTORS, read_by_descriptors
from shardc.backends.triton.matmul.tiles import blocks, cast, masked_load, place_text, whole_tiling
from shardc.cost.machine import Gpu
from shardc.cost.matmul import Product, Tiling, estimate_s
from shardc.dialects.kern.grouped_matmul import GroupedMatmul, GroupedMatmulOp, grouped_matmul_of
from shardc.dialects.kern.types import ELEMENTS


@handles(GroupedMatmulOp)
def emit_grouped_matmul(body: Structured, said: Said, target: Gpu, *, tf32: bool = False) -> Emitted:
    """Return the module of a kernel. Raises TritonKernelNotSupported if no tile fits."""
    return _Grouped(said, grouped_matmul_of(body.op), body.config, target, tf32).emit()


def average(spec: GroupedMatmul, matrix: bool) -> Product:
    """Return the product of each group, as if all groups had the same size (for estimates)."""
    sizes = spec.sizes | {spec.shared: max(1, -(-spec.sizes[spec.shared] // spec.sizes["g"]))}
    bytes_ = spec.dtype.itemsize
    return Product(
        spec.sizes["g"], sizes["m"], sizes["n"], sizes["k"], bytes_, bytes_, matrix, is_direct(spec)
    )


def is_direct(spec: GroupedMatmul) -> bool:
    """Return True if rows of both factors are multiples of 16 bytes and groups begin at rows."""
    whole = all(
        spec.sizes[d[-1]] * spec.dtype.itemsize % ALIGNMENT_BYTES == 0 for d in (spec.left, spec.right)
    )
    return whole and not _is_scattered(spec)


def _is_scattered(spec: GroupedMatmul) -> bool:
    """Return True if a factor is contiguous along the groups' dim: its elements are loaded singly."""
    return spec.shared in (spec.left[-1], spec.right[-1])


@dataclass
class _Grouped:
    said: Said
    spec: GroupedMatmul
    config: Mapping[str, int]
    target: Gpu
    tf32: bool

    def emit(self) -> Emitted:
        spec, name, element = self.spec, self.said.name, ELEMENTS[self.spec.dtype]
        product = average(spec, spec.dtype != torch.float32 or self.tf32)
        beside = self.target.backend == "hip" or _is_scattered(spec)
        tiling = whole_tiling(product, self.target, self.config, beside=beside)
        given = [pointer("left", element), pointer("right", element), pointer("ends", "i32")]
        module = Module(name, self.said.title, Memory(given, [pointer("out", element)]))
        module.sizes = [f"{dim.upper()} = tl.constexpr({spec.sizes[dim]})" for dim in "gmnk"]
        module.sizes += precision_lines(element, self.tf32)
        module.helpers = [place_text(name)]
        if self.by_descriptor:
            read_by_descriptors(module, ["left", "right"])
        part = self._terms(tiling) if spec.shared == "k" else self._rows(tiling)
        part.seconds = estimate_s(tiling, product, self.target)
        module.parts = [part]
        moved = product.element_bytes * sum(spec.numel(dims) for dims in (spec.left, spec.right, spec.out))
        module.estimated(product.flops, product.flop_s(self.target), moved, self.target)
        return module.finish("matmul")

    @property
    def by_descriptor(self) -> bool:
        """True if descriptors read both factors. Not f32 on sm_100: its transposed copies do not fit."""
        has = self.target.arch in HAS_DESCRIPTORS and not self.config.get("pointers")
        return has and is_direct(self.spec) and (self.target.arch != 100 or self.spec.dtype.itemsize == 2)

    def _sum(self, t: Tiling) -> list[str]:
        """Return the lines that sum ``left`` times ``right`` over the terms ``first`` to ``end``."""
        spec, precision = self.spec, precision_of(ELEMENTS[self.spec.dtype])
        head = [
            "total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)",
            "for start in tl.range(first, end, BLOCK_K):",
        ]
        if self.by_descriptor:
            x, y = _tile("left", spec.left, "mk"), _tile("right", spec.right, "kn")
            return [*head, f"    total = tl.dot({x}, {y}, total{precision})"]
        terms = spec.shared == "k" or spec.sizes["k"] % t.block_k
        row = "m[:, None] < M", spec.sizes["m"] % t.block_m if spec.shared != "m" else 0
        column = "n[None, :] < N", spec.sizes["n"] % t.block_n if spec.shared != "n" else 0
        return [
            *head,
            f"    x = {masked_load('left', ('start + k[None, :] < end', terms), row)}",
            f"    y = {masked_load('right', ('start + k[:, None] < end', terms), column)}",
            f"    total = tl.dot(x, y, total{precision})",
            f"    left += BLOCK_K{_at(spec.left, 'k')}",
            f"    right += BLOCK_K{_at(spec.right, 'k')}",
        ]

    def _factors(self, m: str, n: str, left: str, right: str) -> list[str]:
        """Return lines of descriptors, or of pointers to BLOCK_K terms of rows ``m`` and columns ``n``."""
        spec = self.spec
        if self.by_descriptor:
            terms = "tl.maximum(end, 1)" if spec.shared == "k" else "K"
            return [
                f"left_tiles = {_descriptor(left, spec.left, terms)}",
                f"right_tiles = {_descriptor(right, spec.right, terms)}",
            ]
        return [
            "k = tl.arange(0, BLOCK_K)",
            f"left = {left} + {m}.to(tl.int64){_at(spec.left, 'm')} + k[None, :]{_at(spec.left, 'k')}",
            f"right = {right} + {n}.to(tl.int64){_at(spec.right, 'n')} + k[:, None]{_at(spec.right, 'k')}",
        ]

    def _store(self, to: str, inside: str) -> str:
        value = cast("total", self.spec.dtype)
        return f"tl.store({to} + m[:, None].to(tl.int64) * N + n[None, :], {value}, mask={inside})"

    def _rows(self, t: Tiling) -> Part:
        """Return the function for groups that divide rows, or columns (the two sides exchanged)."""
        spec, rows = self.spec, self.spec.shared
        across, matrix = ("n", "right") if rows == "m" else ("m", "left")
        own, other = (t.block_m, t.block_n) if rows == "m" else (t.block_n, t.block_m)
        block, size = f"BLOCK_{rows.upper()}", rows.upper()
        many = f"{size} // {block} + G + 1"
        bases = {"left": "left_ptr", "right": "right_ptr"}
        which = "tl.minimum(group, G - 1)" if self.by_descriptor else "group"
        bases[matrix] = f"{matrix}_ptr + {which}.to(tl.int64) * ({across.upper()} * K)"
        sides = {"m": "[:, None]", "n": "[None, :]"}
        index = {across: across + sides[across], rows: f"tl.minimum({rows}, {size} - 1){sides[rows]}"}
        inside = f"({rows}{sides[rows]} < last)"
        if spec.sizes[across] % other:
            inside += f" & ({index[across]} < {across.upper()})"
        lines = [
            f"columns = tl.cdiv({across.upper()}, BLOCK_{across.upper()})",
            f"block, column = {self.said.name}_place(tl.program_id(0), {many}, columns, GROUP)",
            "# What each group has, and behind the last one what none has, begins a block",
            "g = tl.arange(0, BLOCK_G)",
            f"ends = tl.load(ends_ptr + g, mask=g < G, other={size})",
            "starts = tl.load(ends_ptr + g - 1, mask=(g > 0) & (g <= G), other=0)",
            f"ends, starts = {_limited('ends', size)}, tl.where(g > G, {size}, {_limited('starts', size)})",
            f"blocks = tl.cdiv(tl.maximum(ends - starts, 0), {block})",
            "behind = tl.cumsum(blocks)",
            "group = tl.sum((behind <= block).to(tl.int32))",
            f"begin = tl.sum(tl.where(g == group, starts + (block - behind + blocks) * {block}, 0))",
            "last = tl.sum(tl.where(g == group, ends, 0))",
            f"{rows} = begin + tl.arange(0, {block})",
            f"{across} = column * BLOCK_{across.upper()} + tl.arange(0, BLOCK_{across.upper()})",
            *[f"first_{rows}, first_{across} = begin, column * BLOCK_{across.upper()}"] * self.by_descriptor,
            "first, end = 0, tl.where(group < G, K, 0)",
            *self._factors(index["m"], index["n"], bases["left"], bases["right"]),
            *self._sum(t),
            self._store("out_ptr", inside),
        ]
        most = spec.sizes[rows] // own + spec.sizes["g"] + 1
        constants = blocks(t) | {"BLOCK_G": power_of_two(spec.sizes["g"] + 1)}
        grid = f"({most} * triton.cdiv({spec.sizes[across]}, BLOCK_{across.upper()}),)"
        says = f"A tile of the {'rows' if rows == 'm' else 'columns'} of one group."
        return Part(self.said.name, lines, constants, grid, t.warps, says, t.stages)

    def _terms(self, t: Tiling) -> Part:
        """Return the function for groups that divide the terms of sums."""
        spec, sizes = self.spec, self.spec.sizes
        left, right = "left_ptr", "right_ptr"
        if not self.by_descriptor:
            left += f" + first.to(tl.int64){_at(spec.left, 'k')}"
            right += f" + first.to(tl.int64){_at(spec.right, 'k')}"
        ragged = {"(m[:, None] < M)": sizes["m"] % t.block_m, "(n[None, :] < N)": sizes["n"] % t.block_n}
        whole = [condition for condition, rest in ragged.items() if rest]
        lines = [
            "rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)",
            "group = tl.program_id(0) // (rows * columns)",
            f"row, column = {self.said.name}_place(tl.program_id(0) % (rows * columns), rows, columns, "
            f"GROUP)",
            "m = row * BLOCK_M + tl.arange(0, BLOCK_M)",
            "n = column * BLOCK_N + tl.arange(0, BLOCK_N)",
            *["first_m, first_n = row * BLOCK_M, column * BLOCK_N"] * self.by_descriptor,
            f"first = {_limited('tl.load(ends_ptr + group - 1, mask=group > 0, other=0)', 'K')}",
            f"end = {_limited('tl.load(ends_ptr + group)', 'K')}",
            *self._factors("m[:, None]", "n[None, :]", left, right),
            *self._sum(t),
            self._store("out_ptr + group.to(tl.int64) * (M * N)", " & ".join(whole) or "None"),
        ]
        grid = f"({sizes['g']} * triton.cdiv({sizes['m']}, BLOCK_M) * triton.cdiv({sizes['n']}, BLOCK_N),)"
        says = "A tile of the product of one group, of the terms that it has."
        return Part(self.said.name, lines, blocks(t), grid, t.warps, says, t.stages)


def _at(dims: str, dim: str) -> str:
    """Return ``" * stride"`` of a tensor's dim; empty if the stride is 1."""
    return "".join(f" * {other.upper()}" for other in dims[dims.index(dim) + 1 :])


def _descriptor(start: str, dims: str, terms: str) -> str:
    """Return the descriptor of a factor (or one group's matrix) from ``start``; terms end at ``terms``."""
    dims = dims[-2:]
    shape = ", ".join(terms if dim == "k" else dim.upper() for dim in dims)
    block = ", ".join(f"BLOCK_{dim.upper()}" for dim in dims)
    return f"tl.make_tensor_descriptor({start}, [{shape}], [{dims[1].upper()}, 1], [{block}])"


def _tile(role: str, dims: str, way: str) -> str:
    """Return the load of a factor's tile by its descriptor, with dims in the order ``way``."""
    dims = dims[-2:]
    at = ", ".join("start" if dim == "k" else f"first_{dim}" for dim in dims)
    return f"{role}_tiles.load([{at}])" + ("" if dims == way else ".T")


def _limited(end: str, size: str) -> str:
    """Return an end limited to 0..size: a wrong value reads no other memory."""
    return f"tl.minimum(tl.maximum({end}, 0), {size})"
