"""Triton module of ``kern.linear_cross_entropy`` or its backward: tiles, parts, estimates.

``#kern.config`` may set ``block_m``, ``block_n``, ``block_k``, ``warps`` and ``stages`` (for all products),
``parts`` (of the classes, forward) and ``chunk`` (classes at a time in backward: a power of 2, at least 16).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch_mlir import ir

from shardc.backends.body.handlers import handles
from shardc.backends.body.structured import Structured
from shardc.backends.triton.emit.emitted import Emitted
from shardc.backends.triton.emit.memory import Memory, pointer
from shardc.backends.triton.emit.module import Module, Part
from shardc.backends.triton.emit.names import Said
from shardc.backends.triton.losses.cross_entropy import Writer
from shardc.backends.triton.matmul.tiles import blocks, place_text, whole_tiling
from shardc.cost.kernel import stream_s
from shardc.cost.machine import Gpu
from shardc.cost.matmul import Product, Tiling, estimate_s
from shardc.cost.work import LOGIT_INSTRUCTIONS
from shardc.dialects.kern.linear_cross_entropy import (
    MADE,
    LinearCrossEntropy,
    LinearCrossEntropyOp,
    linear_cross_entropy_of,
)
from shardc.dialects.kern.linear_cross_entropy_backward import (
    LinearCrossEntropyBackwardOp,
    given_roles,
    linear_cross_entropy_backward_of,
)
from shardc.dialects.kern.types import ELEMENTS

FORWARD, BACKWARD = LinearCrossEntropyOp.OPERATION_NAME, LinearCrossEntropyBackwardOp.OPERATION_NAME
_SAYS = {
    "forward": "A program: BLOCK_M rows, past which TILES tiles of classes go by.",
    "join": "The logarithms of each row's sum and of its class, from all parts.",
    "wrong": "The largest index that names no class.",
    "slopes": "A tile of the gradients of a chunk's logits.",
    "dweight": "A tile of the gradient of a chunk's weights.",
    "drows": "A tile of the gradient of the rows: what a chunk adds.",
    "dbias": "The gradient of a chunk's biases.",
}
_MADE = {FORWARD: MADE, BACKWARD: ("drows", "dweight", "dbias")}
CHUNKS = tuple(1 << n for n in range(9, 14))
NEAR = 1.05
"""A smaller chunk is chosen if its time is at most this times the fastest chunk's."""
JOIN, INDICES = 256, 4096
"""Rows of a program that combines parts, and indices that are checked at a time."""
BIASES = {"BLOCK_M": 128, "BLOCK_N": 32}
"""Rows that a program adds up at a time, and the number of classes that it sums."""


@handles(LinearCrossEntropyOp, LinearCrossEntropyBackwardOp)
def emit_cross_entropy(body: Structured, said: Said, target: Gpu, *, tf32: bool = False) -> Emitted:
    """Return the module of a kernel. Raises TritonKernelNotSupported if no tile fits."""
    op, made = body.op, [_MADE[body.op.name][number] for number in body.results]
    forward = op.name == FORWARD
    spec = linear_cross_entropy_of(op) if forward else linear_cross_entropy_backward_of(op)
    scale = 1.0 if forward else ir.FloatAttr(op.attributes["scale"]).value
    given = ("rows", "weight", "index", "bias")[: len(op.operands)] if forward else given_roles(op)
    return _CrossEntropy(said, spec, given, made, scale, body.config, target, tf32).emit()


@dataclass
class _CrossEntropy:
    said: Said
    spec: LinearCrossEntropy
    given: Sequence[str]
    made: Sequence[str]
    scale: float
    config: Mapping[str, int]
    target: Gpu
    tf32: bool

    def emit(self) -> Emitted:
        spec, name = self.spec, self.said.name
        pointers = {role: pointer(role, ELEMENTS[t.dtype]) for role, t in spec.tensors.items()}
        self.memory = Memory([pointers[r] for r in self.given], [pointers[r] for r in self.made])
        module = Module(name, self.said.title, self.memory)
        forward = "lse" not in self.given
        if forward:
            self.writer = Writer(name, spec, self.tf32)
            tiling, module.parts = self._forward()
            module.helpers = [self.writer.logits(tiling)]
        else:
            self.writer = Writer(name, spec, self.tf32, self._chunk(), self.scale)
            tilings = self._tilings(self.writer.chunk)
            module.parts = self._backward(tilings)
            module.helpers = [place_text(name), self.writer.logits(tilings["slopes"][1])]
        module.sizes = self.writer.constants()
        product = self._product(spec.rows, spec.classes, spec.size)
        times = 1 if forward else 1 + len(set(self.made) - {"dbias"})
        moved = sum(spec.tensors[role].size_bytes for role in (*self.given, *self.made))
        module.estimated(times * product.flops, product.flop_s(self.target), moved, self.target)
        return module.finish("matmul")

    def _product(self, m: int, n: int, k: int, read: int = 0, written: int = 0, work: int = 0) -> Product:
        """``read`` and ``written``: bytes for each element of the result."""
        size = self.spec.dtype.itemsize
        matrix, direct = self.spec.dtype != torch.float32 or self.tf32, self.spec.size * size % 16 == 0
        return Product(1, m, n, k, size, read + written, matrix, direct=direct, result_work=work)

    # Forward

    def _forward(self) -> tuple[Tiling, list[Part]]:
        spec, name = self.spec, self.writer.name
        p = self._product(spec.rows, spec.classes, spec.size, work=LOGIT_INSTRUCTIONS)
        total, top = "total" in self.made, "top" in self.made
        beside = self.target.backend == "hip" or total or "bias" in spec.tensors
        t = whole_tiling(p, self.target, self.config, beside=beside)
        row_blocks, tiles = -(-spec.rows // t.block_m), -(-spec.classes // t.block_n)
        parts = self.config.get("parts") or min(tiles, max(1, -(-4 * self.target.units // row_blocks)))
        each = -(-tiles // parts)
        parts = -(-tiles // each)
        roles = ("best", "sums", "picked", *(["summed"] if total else []))
        for role in roles:
            self.memory.work(role, parts * spec.rows, "f32")
        grid = f"(triton.cdiv({spec.rows}, BLOCK_M) * {parts},)"
        constants = {"BLOCK_M": t.block_m, "BLOCK_N": t.block_n, "BLOCK_K": t.block_k, "TILES": each}
        says, seconds = _SAYS["forward"], estimate_s(t, p, self.target)
        body = self.writer.forward(total)
        first = Part(name, body, constants, grid, t.warps, says, t.stages, seconds)
        moved, programs = 4 * spec.rows * (len(roles) * parts + 2 + total + top), -(-spec.rows // JOIN)
        constants, grid = {"BLOCK": JOIN, "PARTS": parts}, f"(triton.cdiv({spec.rows}, BLOCK),)"
        seconds = stream_s(moved, programs, 4, self.target, steps=parts)
        body = self.writer.join(total, top)
        join = Part(f"{name}_join", body, constants, grid, 4, _SAYS["join"], 1, seconds)
        return t, [first, join, *([self._wrong()] if "wrong" in self.made else [])]

    def _wrong(self) -> Part:
        rows = self.spec.rows
        seconds = stream_s(8 * rows, 1, 8, self.target, steps=-(-rows // INDICES))
        name, body = f"{self.writer.name}_wrong", self.writer.wrong()
        return Part(name, body, {"BLOCK": INDICES}, "(1,)", 8, _SAYS["wrong"], seconds=seconds)

    # Backward

    def _chunk(self) -> int:
        """Return the smallest chunk with nearly the least time. At least two chunks: slopes stay small."""
        if "chunk" in self.config:
            return self.config["chunk"]
        small = [c for c in CHUNKS if 2 * c <= self.spec.classes]
        if not small:
            return max(16, 1 << ((self.spec.classes - 1) // 2).bit_length())
        each = {c: sum(estimate_s(t, p, self.target) for p, t in self._tilings(c).values()) for c in small}
        seconds = {c: -(-self.spec.classes // c) * each[c] for c in small}
        return next(c for c in small if seconds[c] <= NEAR * min(seconds.values()))

    def _tilings(self, chunk: int) -> dict[str, tuple[Product, Tiling]]:
        spec, size = self.spec, self.spec.dtype.itemsize
        slopes = self._product(spec.rows, chunk, spec.size, written=size, work=LOGIT_INSTRUCTIONS)
        products = {"slopes": slopes}
        if "dweight" in self.made:
            products["dweight"] = self._product(chunk, spec.size, spec.rows, written=size)
        if "drows" in self.made:
            products["drows"] = self._product(spec.rows, spec.size, chunk, read=4, written=4)
        beside = {"drows", "slopes"} if spec.tensors.keys() & {"bias", "spread", "sums"} else {"drows"}
        tile = lambda role, p: whole_tiling(p, self.target, self.config, beside=role in beside)  # noqa: E731
        return {role: (p, tile(role, p)) for role, p in products.items()}

    def _backward(self, tilings: Mapping[str, tuple[Product, Tiling]]) -> list[Part]:
        spec, chunk, writer = self.spec, self.writer.chunk, self.writer
        chunks = -(-spec.classes // chunk)
        self.memory.work("slopes", spec.rows * chunk, ELEMENTS[spec.dtype])
        sums = "drows_ptr"
        if "drows" in self.made and spec.dtype != torch.float32:
            sums = self.memory.work("added", spec.rows * spec.size, "f32").name
        factor = "weight_again_ptr" if "weight_again" in self.given else "weight_ptr"
        bodies = {
            "slopes": lambda _: writer.slopes(),
            "dweight": writer.dweight,
            "drows": lambda t: writer.drows(t, factor, sums),
        }
        parts = []
        for role, (p, t) in tilings.items():
            name, body, says = f"{writer.name}_{role}", bodies[role](t), _SAYS[role]
            grid = f"(triton.cdiv({p.m}, BLOCK_M) * triton.cdiv({p.n}, BLOCK_N),)"
            seconds = chunks * estimate_s(t, p, self.target)
            parts.append(Part(name, body, blocks(t), grid, t.warps, says, t.stages, seconds))
        if "dbias" in self.made:
            name, grid = f"{writer.name}_dbias", f"(triton.cdiv({chunk}, BLOCK_N),)"
            read, programs = spec.rows * chunk * spec.dtype.itemsize, -(-chunk // BIASES["BLOCK_N"])
            steps = -(-spec.rows // BIASES["BLOCK_M"])
            seconds = chunks * stream_s(read, programs, 4, self.target, steps=steps)
            parts.append(Part(name, writer.dbias(), BIASES, grid, 4, _SAYS["dbias"], 2, seconds))
        loop = f"for first in range(0, {spec.classes}, {chunk}):"
        return [replace(part, loop=loop, integers=("first",)) for part in parts]
