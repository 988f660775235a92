"""Contraction of a kernel: its factors, their axes and types, and its stored results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from torch_mlir import ir

from shardc.backends.body.contraction import Contraction
from shardc.backends.body.graph import Computed, Generic
from shardc.backends.body.linear import Axis
from shardc.backends.body.nest import Nest
from shardc.backends.body.roots import Root, Roots
from shardc.backends.triton.emit.memory import Memory
from shardc.backends.triton.emit.text import precision_lines, size_text
from shardc.cost.machine import Gpu
from shardc.dialects.kern.size import AnySize, Size

LETTERS = "bmnk"
SIZES = {"b": "BATCH", "m": "M", "n": "N", "k": "K"}
BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
"""Bytes of an element of a factor."""


@dataclass(eq=False)
class Matmul:
    """A matmul to emit. ``outputs``: parameter of each stored result. ``tf32``: whether torch allows it."""

    name: str
    nest: Nest
    roots: Roots
    contraction: Contraction
    value: Computed
    target: Gpu
    memory: Memory
    outputs: Mapping[tuple[Root, int], str]
    sizes: Mapping[ir.Value, AnySize]
    tf32: bool

    @cached_property
    def axes(self) -> dict[str, list[Axis]]:
        c, order = self.contraction, self.nest.order
        letters = zip(LETTERS, (c.batch, c.m, c.n, c.k), strict=True)
        return {x: [a for a in axes if a in order] for x, axes in letters}

    def size(self, letter: str) -> AnySize:
        return prod(self.nest.sizes[a] for a in self.axes[letter])

    @property
    def generic(self) -> Generic:
        """Op that adds up the products."""
        assert self.contraction.root.generic is not None
        return self.contraction.root.generic

    @cached_property
    def factors(self) -> tuple[ir.Value, ir.Value]:
        """Scalars that are multiplied. If both are widened from one narrow type: as they were before."""
        given = (self.contraction.left.value, self.contraction.right.value)
        left, right = (_narrow(value) for value in given)
        return (left, right) if left is not None and right is not None and left.type == right.type else given

    @cached_property
    def element(self) -> str:
        """Type of the factors."""
        return str(self.factors[0].type)

    @cached_property
    def total(self) -> str:
        """Type of the sums."""
        return str(self.value.element)

    @property
    def matrix(self) -> bool:
        """True if matrix instructions multiply it."""
        return self.element in ("f16", "bf16") or (self.element == "f32" and self.tf32)

    @cached_property
    def is_far(self) -> bool:
        """True if offsets may need more than 31 bits."""
        shapes = [v.shape for v in self.memory.of] + [root.result_shape(n) for root, n in self.outputs]
        counts = [prod(shape) for shape in shapes]
        return any(isinstance(n, Size) or n >= 1 << 31 for n in counts)

    # First lines of several functions

    def constants(self) -> list[str]:
        """Return the lines of the sizes at the top of the module."""
        sizes = {x: self.size(x) for x in LETTERS if self.axes[x]}
        lines = [f"{SIZES[x]} = tl.constexpr({n})" for x, n in sizes.items() if not isinstance(n, Size)]
        return [*lines, *precision_lines(self.element, self.tf32)]

    def symbolic(self) -> list[str]:
        """Return the lines of sizes that only a call knows."""
        sizes = {x: n for x in LETTERS if isinstance(n := self.size(x), Size)}
        return [f"{SIZES[x]} = {size_text(n, self.memory.sizes)}" for x, n in sizes.items()]

    def index(self, name: str, text: str) -> str:
        return f"{name} = ({text}).to(tl.int64)" if self.is_far else f"{name} = {text}"


def _narrow(value: ir.Value) -> ir.Value | None:
    """Return a factor before it is widened to f32; None if it is not widened."""
    if isinstance(value, ir.BlockArgument):
        return None
    made = value.owner.operation
    if made.name != "arith.extf" or str(value.type) != "f32":
        return None
    return made.operands[0] if str(made.operands[0].type) in ("bf16", "f16") else None
