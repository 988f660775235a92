"""A contraction with what stands before and after it, as functions of a Triton module.

``name_sum`` adds up the products of one tile, with the factors computed where they are read; ``name_finish``
computes what is made of the tile and writes it. ``forms.py`` has the kernels around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from torch_mlir import ir

from shardc.backends.body.contraction import Contraction
from shardc.backends.body.graph import Computed, Value
from shardc.backends.body.linear import Axis, row_major
from shardc.backends.body.nest import Nest
from shardc.backends.body.roots import Root, Roots
from shardc.backends.triton.emit.code import Code
from shardc.backends.triton.emit.element import Elements
from shardc.backends.triton.emit.text import Expr, Names, size_text
from shardc.backends.triton.emit.traffic import element_bytes, instructions
from shardc.backends.triton.matmul.descriptor import (
    HAS_DESCRIPTORS,
    Descriptor,
    find_descriptor,
    is_direct,
    is_read,
)
from shardc.cost.machine import Gpu
from shardc.cost.matmul import Product, Tiling
from shardc.dialects.kern.size import AnySize, Size, hint

LITTLE_WORK, MUCH_WORK = 12, 140
"""Instructions for an element made of a sum, from which one value, or three (random numbers), live besides
it: all elements of a thread are loaded at once (measured by compiling: decision 57).
"""
AMD_BESIDE = 3
"""Values that live with a sum on AMD, at most, whatever the work: LLVM computes several elements at once."""
LETTERS = "bmnk"
SIZES = {"b": "BATCH", "m": "M", "n": "N", "k": "K"}
_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
_TYPES = {"f16": "tl.float16", "bf16": "tl.bfloat16", "f32": "tl.float32", "f64": "tl.float64"}


@dataclass(eq=False)
class Matmul:
    """A matmul to write. ``pointers``: parameters of values in memory; ``outputs``: of stored results."""

    name: str
    nest: Nest
    roots: Roots
    contraction: Contraction
    value: Computed
    target: Gpu
    pointers: Mapping[Value, str]
    outputs: Mapping[tuple[Root, int], str]
    hints: Mapping[Value, str] = field(default_factory=dict)
    sizes: Mapping[ir.Value, AnySize] = field(default_factory=dict)
    size_names: list[str] = field(default_factory=list)
    tf32: bool = False

    # What is multiplied

    @cached_property
    def axes(self) -> dict[str, list[Axis]]:
        c, order = self.contraction, self.nest.order
        return {
            x: [a for a in axes if a in order]
            for x, axes in zip(LETTERS, (c.batch, c.m, c.n, c.k), strict=True)
        }

    def size(self, letter: str) -> AnySize:
        return prod(self.nest.sizes[a] for a in self.axes[letter])

    @cached_property
    def factors(self) -> tuple[ir.Value, ir.Value]:
        """The scalars that are multiplied: as they are before widening, if both are of one narrow type."""
        given = (self.contraction.left.value, self.contraction.right.value)
        left, right = (_narrow(value) for value in given)
        return (left, right) if left is not None and right is not None and left.type == right.type else given

    @cached_property
    def element(self) -> str:
        """The type of the factors."""
        return str(self.factors[0].type)

    @cached_property
    def total(self) -> str:
        """The type of the sums."""
        return str(self.value.element)

    @property
    def matrix(self) -> bool:
        """Whether matrix instructions multiply it."""
        return self.element in ("f16", "bf16") or (self.element == "f32" and self.tf32)

    @cached_property
    def product(self) -> Product:
        """What the model of costs knows of it."""
        b, m, n, k = (hint(self.size(x)) for x in LETTERS)
        stored = [str((root.value or self.value).element) for root, _ in self.outputs]
        around = [*stored, *self._read_after()]
        result_bytes = sum(_BYTES.get(t, 8) for t in around)
        narrow = len(around) == 1 and _BYTES.get(around[0], 8) <= 2
        direct = all(is_direct(self, side) for side in (0, 1))
        (left_bytes, left_work), (right_bytes, right_work) = (self._made(side) for side in (0, 1))
        work = self._work_after()
        read = around[len(stored) :]
        parted = len(self.axes["m"]) > 1 and bool(read)  # offsets of what is read are computed, too
        beside = 3 if work >= MUCH_WORK else int(work >= LITTLE_WORK or parted)
        beside += sum(_BYTES.get(t, 8) for t in read) / 4
        if self.target.backend == "hip":
            beside = AMD_BESIDE * (work >= LITTLE_WORK)
        return Product(
            b,
            m,
            n,
            k,
            _BYTES[self.element],
            result_bytes,
            self.matrix,
            direct,
            1 if narrow else 4,
            self.by_descriptor,
            left_bytes,
            right_bytes,
            left_work,
            right_work,
            work,
            beside,
        )

    def _made(self, side: int) -> tuple[int, int]:
        """Bytes read and instructions run for an element of a factor; 0 and 0 for one that lies in memory."""
        root = self.contraction.root
        factor = (self.contraction.left, self.contraction.right)[side]
        operands = [
            (root.generic.operands[n], root.generic.operand_index(n, root.dims)) for n in factor.operands
        ]
        reads = self.roots.reads_of(operands)
        if not reads.between:
            return 0, 0
        whole = [{*self.axes["mn"[side]]}, {*self.axes["k"]}]
        full = [
            v
            for v, index in reads.ends
            if index and all(axes & {a for p in index for a in p.axes} for axes in whole)
        ]
        return sum(element_bytes(v.element) for v in full), instructions(v for v, _ in reads.between)

    def _work_after(self) -> int:
        """Instructions for an element of what is made of the product."""
        return instructions(v for root in self.nest.roots[1:] for v, _ in self.roots.reads(root).between)

    @property
    def by_descriptor(self) -> bool:
        """Whether a loop over tiles reads both factors by descriptors (made outside: Triton 3.6)."""
        has = self.target.arch in HAS_DESCRIPTORS and not self.axes["b"]
        return has and all(find_descriptor(self, side) for side in (0, 1))

    def _read_after(self) -> list[str]:
        """The types of tensors as large as the result that are read with it."""
        found: dict[Value, None] = {}
        for root in self.nest.roots[1:]:
            for value, index in self.roots.reads(root).ends:
                axes = {a for position in index or () for a in position.axes}
                if value in self.pointers and axes & {*self.axes["m"]} and axes & {*self.axes["n"]}:
                    found[value] = None
        return [str(value.element) for value in found]

    @cached_property
    def is_far(self) -> bool:
        """Whether offsets may take more than 31 bits."""
        shapes = [v.shape for v in self.pointers] + [root.result_shape(n) for root, n in self.outputs]
        counts = [prod(shape) for shape in shapes]
        return any(isinstance(n, Size) or n >= 1 << 31 for n in counts)

    # Lines that several functions begin with

    def constants(self) -> list[str]:
        """The sizes, at the top of the module."""
        letters = [x for x in LETTERS if self.axes[x]]
        lines = [
            f"{SIZES[x]} = tl.constexpr({n})" for x in letters if not isinstance(n := self.size(x), Size)
        ]
        if self.element == "f32":
            lines.append(
                f'PRECISION = tl.constexpr("{"tf32" if self.tf32 else "ieee"}")  # of products, as torch '
                f"was set"
            )
        return lines

    def symbolic(self) -> list[str]:
        """Sizes that are known at the call alone."""
        return [
            f"{SIZES[x]} = {size_text(n, self.size_names)}"
            for x in LETTERS
            if isinstance(n := self.size(x), Size)
        ]

    def index(self, name: str, text: str) -> str:
        return f"{name} = ({text}).to(tl.int64)" if self.is_far else f"{name} = {text}"


def _narrow(value: ir.Value) -> ir.Value | None:
    """What a factor is before it is widened to f32."""
    if isinstance(value, ir.BlockArgument):
        return None
    made = value.owner.operation
    narrow = (
        made.name == "arith.extf"
        and str(made.operands[0].type) in ("bf16", "f16")
        and str(value.type) == "f32"
    )
    return made.operands[0] if narrow else None


class Writer:
    """The functions ``name_sum`` and ``name_finish`` under one tiling."""

    def __init__(self, matmul: Matmul, tiling: Tiling, descriptors: bool) -> None:
        self.matmul, self.tiling = matmul, tiling
        self.blocks = {"m": tiling.block_m, "n": tiling.block_n, "k": tiling.block_k}
        descriptors = descriptors and (matmul.by_descriptor or not tiling.persistent)
        found = [find_descriptor(matmul, side) for side in (0, 1)] if descriptors else [None, None]
        self.descriptors: list[Descriptor | None] = found if None not in found else [None, None]

    @property
    def by_descriptor(self) -> bool:
        return self.descriptors[0] is not None

    def ragged(self, letter: str) -> bool:
        size = self.matmul.size(letter)
        return isinstance(size, Size) or size % self.blocks[letter] != 0

    def elements(self, code: Code, letters: str, *, always: bool = False) -> Elements:
        """Elements of a tile: the first letter down, the second across. ``always``: masked anyhow."""
        matmul = self.matmul
        made = Elements(
            code,
            matmul.pointers,
            matmul.hints,
            matmul.sizes,
            matmul.size_names,
            "tl.int64" if matmul.is_far else "tl.int32",
            merged=matmul.nest.merged,
        )
        for letter in (*letters, "b"):
            side = {"b": ""}.get(letter, "[:, None]" if letter == letters[0] else "[None, :]")
            tag = self.tag(letter, letters)
            vary = frozenset() if letter == "b" else frozenset([tag])
            for axis, text in zip(matmul.axes[letter], self.axis_names(letter), strict=True):
                made.axes[axis] = Expr(f"{text}{side}", "index", vary)
            if letter != "b" and (always or self.ragged(letter)):
                made.masks[tag] = f"({NAMES[letter]}{side} < {SIZES[letter]})"
        return made

    @staticmethod
    def tag(letter: str, letters: str) -> str:
        """The terms of the sum stand across in the left factor and down in the right one: two indices."""
        return letter if letter != "k" else f"k of {letters}"

    def axis_names(self, letter: str) -> list[str]:
        name, axes = NAMES[letter], self.matmul.axes[letter]
        return [name] if len(axes) == 1 else [f"{name}_{number}" for number in range(len(axes))]

    def spread(self, letter: str) -> list[str]:
        """The lines that make a position along several axes together one on each."""
        axes, rest, lines = self.matmul.axes[letter], NAMES[letter], []
        if len(axes) < 2:
            return []
        for name, axis in reversed(list(zip(self.axis_names(letter), axes, strict=True))):
            size = size_text(self.matmul.nest.sizes[axis], self.matmul.size_names)
            size = size if size.isidentifier() or size.isdigit() else f"({size})"
            first = axis == axes[0]
            lines.append(f"{name} = {rest}" if first else f"{name} = {rest} % {size}")
            rest = f"{rest} // {size}"
        return lines

    # Functions

    def parameters(self, used: list[str]) -> str:
        return "".join(f"{p}, " for p in used)

    def sum_body(self) -> list[str]:
        """The body of ``name_sum``: the terms from ``low`` to ``high``."""
        matmul, dtype = self.matmul, _TYPES[self.matmul.total]
        code = Code(Names(_LOCALS))
        for line in [*matmul.symbolic(), *self.spread("b"), *self.spread("m"), *self.spread("n")]:
            code.line(line)
        for tag in ("m", "n"):
            code.add_index(tag)
        total = Expr(f"tl.zeros([BLOCK_M, BLOCK_N], {dtype})", matmul.total)
        code.line(f"total = {total.text}")
        with code.block("for start in tl.range(low, high, BLOCK_K):", frozenset(["k of mk", "k of kn"])):
            if self.by_descriptor:
                left, right = (f"{d.load}" for d in self.descriptors if d)
            else:
                code.line(matmul.index("k", "start + tl.arange(0, BLOCK_K)"))
                for line in self.spread("k"):
                    code.line(line)
                left, right = self._factor(code, 0, "mk"), self._factor(code, 1, "kn")
            precision = ", input_precision=PRECISION" if matmul.element == "f32" else ""
            out = f", out_dtype={dtype}" if matmul.total == "f64" else ""
            code.line(f"total = tl.dot({left}, {right}, total{precision}{out})")
        code.line("return total")
        return code.text

    def _factor(self, code: Code, side: int, letters: str) -> str:
        matmul = self.matmul
        root, value = matmul.contraction.root, matmul.factors[side]
        elements = self.elements(code, letters)
        elements.space = self.tag("k", letters)
        made = elements.part(root.generic, value, root.dims)
        whole = {self.tag(x, letters) for x in letters}
        text = made.text
        if self.ragged("k") and not is_read(root.generic, value, root.dims):
            mask = elements.masks[self.tag("k", letters)]
            text = f"tl.where({mask}, {text}, 0.0)"
        if not whole <= made.vary:
            shape = "[BLOCK_M, BLOCK_K]" if side == 0 else "[BLOCK_K, BLOCK_N]"
            text = f"tl.broadcast_to({text}, {shape})"
        if self.ragged("k") and made.text != text:
            text = f"{text}.to({_TYPES[matmul.element]})"
        return code.name("left" if side == 0 else "right", Expr(text, made.type, frozenset(whole))).text

    def finish_body(self) -> list[str]:
        """The body of ``name_finish``: all that is made of a tile of sums."""
        matmul, product = self.matmul, self.matmul.contraction.root
        code = Code(Names(_LOCALS))
        for line in [*matmul.symbolic(), *self.spread("b"), *self.spread("m"), *self.spread("n")]:
            code.line(line)
        for tag in ("m", "n"):
            code.add_index(tag)
        elements = self.elements(code, "mn", always=self.tiling.split > 1)
        index, init = product.result_index(0), product.generic.inits[0]
        total = Expr("total", matmul.total, frozenset("mn"))
        start = elements.element(init, index)
        if start.literal != 0.0:
            total = code.name("total", Expr(f"{start} + total", matmul.total, frozenset("mn"), atom=False))
        elements.remember(matmul.value, index, total)
        for root in matmul.nest.roots:
            if (root, 0) not in matmul.outputs:
                continue
            made = total if root is product else elements.element(root.value, root.dims)
            at = elements.position(row_major(root.result_index(0), root.result_shape(0)))
            elements.store(matmul.outputs[root, 0], at, made)
        return code.text


NAMES = {"b": "batch", "m": "m", "n": "n", "k": "k"}
_LOCALS = ("m", "n", "k", "batch", "total", "start", "low", "high", "M", "N", "K", "BATCH")
