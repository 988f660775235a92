"""Writer of the functions of one tile of a contraction: ``name_sum`` and ``name_finish``.

``name_sum`` adds up the products of one tile and computes the factors where it reads them. ``name_finish``
computes the results from the tile and stores them. ``forms.py`` has the kernels that call them.
"""

from __future__ import annotations

from shardc.backends.body.linear import row_major
from shardc.backends.triton.emit.code import Code
from shardc.backends.triton.emit.element import Elements
from shardc.backends.triton.emit.text import VALUES, Expr, Names, factor_text, precision_of
from shardc.backends.triton.matmul.contraction import SIZES, Matmul
from shardc.backends.triton.matmul.descriptor import find_descriptor, is_read, reads_by_descriptor
from shardc.cost.matmul import Tiling
from shardc.dialects.kern.size import Size

NAMES = {"b": "batch", "m": "m", "n": "n", "k": "k"}
_LOCALS = ("m", "n", "k", "batch", "total", "start", "low", "high", "M", "N", "K", "BATCH")


class TileFunctions:
    """Writes the functions ``name_sum`` and ``name_finish`` under one tiling."""

    def __init__(self, matmul: Matmul, tiling: Tiling, descriptors: bool) -> None:
        self.matmul, self.tiling = matmul, tiling
        self.blocks = {"m": tiling.block_m, "n": tiling.block_n, "k": tiling.block_k}
        descriptors = descriptors and (reads_by_descriptor(matmul) or not tiling.persistent)
        found = [find_descriptor(matmul, side) for side in (0, 1)] if descriptors else []
        self.descriptors = [] if None in found else [d for d in found if d is not None]

    def ragged(self, letter: str) -> bool:
        size = self.matmul.size(letter)
        return isinstance(size, Size) or size % self.blocks[letter] != 0

    def elements(self, code: Code, letters: str, *, always: bool = False) -> Elements:
        """Return a tile's elements: first letter rows, second columns. ``always``: masked in any case."""
        matmul = self.matmul
        index_type = "tl.int64" if matmul.is_far else "tl.int32"
        made = Elements(code, matmul.memory, matmul.sizes, index_type, merged=matmul.nest.merged)
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
        """Return an index's tag; the terms have two: columns of the left factor, rows of the right."""
        return letter if letter != "k" else f"k of {letters}"

    def axis_names(self, letter: str) -> list[str]:
        name, axes = NAMES[letter], self.matmul.axes[letter]
        return [name] if len(axes) == 1 else [f"{name}_{number}" for number in range(len(axes))]

    def spread(self, letter: str) -> list[str]:
        """Return the lines that split a position along merged axes into one on each axis."""
        axes, rest, lines = self.matmul.axes[letter], NAMES[letter], []
        if len(axes) < 2:
            return []
        for name, axis in reversed(list(zip(self.axis_names(letter), axes, strict=True))):
            size = factor_text(self.matmul.nest.sizes[axis], self.matmul.memory.sizes)
            lines.append(f"{name} = {rest}" if axis == axes[0] else f"{name} = {rest} % {size}")
            rest = f"{rest} // {size}"
        return lines

    def _begin(self) -> Code:
        """Return a body with the first lines of both functions."""
        code = Code(Names(_LOCALS))
        for line in [*self.matmul.symbolic(), *self.spread("b"), *self.spread("m"), *self.spread("n")]:
            code.line(line)
        for tag in ("m", "n"):
            code.add_index(tag)
        return code

    def sum_body(self) -> list[str]:
        """Return the body of ``name_sum``: the terms from ``low`` to ``high``."""
        matmul, dtype, code = self.matmul, VALUES[self.matmul.total], self._begin()
        code.line(f"total = tl.zeros([BLOCK_M, BLOCK_N], {dtype})")
        with code.block("for start in tl.range(low, high, BLOCK_K):", frozenset(["k of mk", "k of kn"])):
            if self.descriptors:
                left, right = (d.load for d in self.descriptors)
            else:
                code.line(matmul.index("k", "start + tl.arange(0, BLOCK_K)"))
                for line in self.spread("k"):
                    code.line(line)
                left, right = self._factor(code, 0, "mk"), self._factor(code, 1, "kn")
            precision = precision_of(matmul.element)
            out = f", out_dtype={dtype}" if matmul.total == "f64" else ""
            code.line(f"total = tl.dot({left}, {right}, total{precision}{out})")
        code.line("return total")
        return code.text

    def _factor(self, code: Code, side: int, letters: str) -> str:
        matmul, terms = self.matmul, self.tag("k", letters)
        generic, dims, value = matmul.generic, matmul.contraction.root.dims, matmul.factors[side]
        elements = self.elements(code, letters)
        elements.space = terms
        made = elements.part(generic, value, dims)
        whole, text = frozenset(self.tag(x, letters) for x in letters), made.text
        if self.ragged("k") and not is_read(generic, value, dims):
            text = f"tl.where({elements.masks[terms]}, {text}, 0.0)"
        if not whole <= made.vary:
            shape = "[BLOCK_M, BLOCK_K]" if side == 0 else "[BLOCK_K, BLOCK_N]"
            text = f"tl.broadcast_to({text}, {shape})"
        if self.ragged("k") and made.text != text:
            text = f"{text}.to({VALUES[matmul.element]})"
        return code.name("left" if side == 0 else "right", Expr(text, made.type, whole)).text

    def finish_body(self) -> list[str]:
        """Return the body of ``name_finish``: everything computed from a tile of sums."""
        matmul, product, code = self.matmul, self.matmul.contraction.root, self._begin()
        elements = self.elements(code, "mn", always=self.tiling.split > 1)
        index, init = product.result_index(0), matmul.generic.inits[0]
        total = Expr("total", matmul.total, frozenset("mn"))
        start = elements.element(init, index)
        if start.literal != 0.0:
            total = code.name("total", Expr(f"{start} + total", matmul.total, frozenset("mn"), atom=False))
        elements.remember(matmul.value, index, total)
        for root in matmul.nest.roots:
            if (root, 0) in matmul.outputs:
                made = total if root.value is None else elements.element(root.value, root.dims)
                at = elements.position(row_major(root.result_index(0), root.result_shape(0)))
                elements.store(matmul.outputs[root, 0], at, made)
        return code.text
