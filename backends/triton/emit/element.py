"""Triton text of a tensor's elements for a whole tile: loads and the ops on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from torch_mlir import ir

from shardc.backends.body.graph import Argument, Computed, Extract, Generic, Slice, Splat, Value, View
from shardc.backends.body.linear import Axis, Index, Linear, row_major
from shardc.backends.body.roots import base
from shardc.backends.triton.emit.code import INLINE, Code
from shardc.backends.triton.emit.memory import Memory
from shardc.backends.triton.emit.names import user_line
from shardc.backends.triton.emit.scalars import one_plus_erf, write_fast_exp, write_one_plus_erf, write_scalar
from shardc.backends.triton.emit.text import Expr, attribute, joined, literal, size_text
from shardc.diagnostics.triton import TritonKernelNotSupported
from shardc.dialects.kern.generic import loop_of
from shardc.dialects.kern.size import AnySize, hint

NARROW = ("bf16", "f16")
SMALL = 16
"""Ratio to the largest tensor's elements from which on a tensor counts as small, as one number per row."""


@dataclass(eq=False)
class Elements:
    """Writer of elements, from values in ``memory``. ``axes``: position of each loop.

    ``masks``: index of a tile -> condition that it is in bounds. ``space``: index of the row's elements in
    use; values that vary along it are only known in its loop. ``sizes``: the body's index values. ``once``:
    condition for stores of values that all programs compute. ``merged``: axes with the value 0
    (``merge_axes``).
    """

    code: Code
    memory: Memory
    sizes: Mapping[ir.Value, AnySize]
    index_type: str
    axes: dict[Axis, Expr] = field(default_factory=dict)
    masks: dict[str, str] = field(default_factory=dict)
    merged: set[Axis] = field(default_factory=set)
    space: str | None = None
    once: str = ""

    @cached_property
    def reads_narrow(self) -> bool:
        """True if the large floating tensors that the kernel reads have 16 bits.

        Their values are then less accurate than any approximation of exp.
        """
        read = [v for v in self.memory.of if isinstance(v, Argument) and isinstance(v.element, ir.FloatType)]
        counts = {v: hint(prod(v.shape)) for v in read}
        most = max(counts.values(), default=0)
        return bool(read) and all(str(v.element) in NARROW or SMALL * counts[v] <= most for v in read)

    def position(self, expression: Linear) -> Expr:
        """Return the value of an index expression."""
        terms = [(self._axis(a), factor) for a, factor in expression.terms if a not in self.merged]
        parts = [self._product(e, f) for e, f in sorted(terms, key=lambda t: -abs(hint(t[1])))]
        if expression.constant != 0 or not parts:
            parts.append(self._size(expression.constant))
        made = parts[0]
        for part in parts[1:]:
            is_minus = part.literal is not None and part.literal < 0
            sign, text = (" - ", part.text.removeprefix("-")) if is_minus else (" + ", part.text)
            made = Expr(f"{made.text}{sign}{text}", "index", joined([made, part]), atom=False)
        if len(parts) == 1:
            return made
        key = ("position", expression, self.space if self.space in made.vary else None)
        return self.code.find(key) or self.code.remember(key, self.code.name("at", made))

    def _axis(self, axis: Axis) -> Expr:
        spaces = (self.code.find(("axis", axis, space)) for space in (self.space, None))
        found = self.axes.get(axis) or next(filter(None, spaces), None)
        if found is None:
            place = "a value at another position of a row than that of its loop"
            raise TritonKernelNotSupported(what=place)
        return found

    def _product(self, axis: Expr, factor: AnySize) -> Expr:
        if axis.literal is not None and isinstance(factor, int):
            return literal(axis.literal * factor, "index")
        if factor == 1:
            return axis
        size = self._size(factor)
        return Expr(f"{axis} * {size}", "index", axis.vary, atom=False)

    def _size(self, size: AnySize) -> Expr:
        if isinstance(size, int):
            return literal(size, "index")
        text = size_text(size, self.memory.sizes)
        return Expr(text, "index", atom=text.isidentifier())

    def element(self, value: Value, index: Index) -> Expr:
        """Return element ``index`` of ``value``, computed at most once in each scope."""
        if isinstance(value, Splat):
            return self.scalar(value.scalar)
        for space in (self.space, None):
            if (found := self.code.find((value, index, space))) is not None:
                return found
        if value in self.memory.of:
            made = self.load(value, self.position(row_major(index, value.shape)))
        elif isinstance(value, Slice):
            made = self.element(value.source, value.source_index(index))
        elif isinstance(value, View):
            made = self._through_view(value, index)
        elif isinstance(value, Computed):
            made = self.result(value.generic, value.number, value.generic.dims_at(value.number, index))
        else:
            unwritten = f"a read of a tensor that nothing wrote ({type(value).__name__})"
            raise TritonKernelNotSupported(what=unwritten)
        return self.remember(value, index, made)

    def remember(self, value: Value, index: Index, made: Expr) -> Expr:
        """Make :meth:`element` return ``made`` from now on."""
        return self.code.remember((value, index, self.space if self.space in made.vary else None), made)

    def _through_view(self, value: View, index: Index) -> Expr:
        if value.follows:
            return self.element(value.source, value.source_index(index))
        source = base(value)
        if isinstance(source, Splat):
            return self.scalar(source.scalar)
        if source not in self.memory.of:
            raise TritonKernelNotSupported(what="a view of a value that is not in memory")
        return self.load(source, self.position(row_major(index, value.shape)))

    def load(self, value: Value, at: Expr) -> Expr:
        element, pointer, mask = str(value.element), self.memory.of[value], self.mask(at.vary)
        other = f", mask={mask}, other=0" if mask else ""
        text = f"tl.load({_place(pointer.name, at)}{other}){'.to(tl.int8)' if element == 'i8' else ''}"
        return self.code.name(pointer.argument, Expr(text, element, at.vary))

    def mask(self, vary: frozenset[str]) -> str:
        """Return the mask for a value that varies along these indices; empty if the tile is in bounds."""
        parts = [self.masks[tag] for tag in sorted(vary, reverse=True) if self.masks.get(tag)]
        return " & ".join(parts)

    def store(self, pointer: str, at: Expr, value: Expr) -> None:
        """Store ``value`` at offset ``at`` of ``pointer``."""
        mask = self.mask(at.vary) if at.vary else self.once
        masked = f", mask={mask}" if mask else ""
        self.code.line(f"tl.store({_place(pointer, at)}, {value.text}{masked})")

    def result(self, generic: Generic, number: int, dims: Index) -> Expr:
        """Return the value that ``generic`` yields as result ``number`` at ``dims``."""
        made = _Body(self, generic, dims).value(generic.yielded[number])
        return self.code.name("v", made, user_line(generic.op.location))

    def term(self, generic: Generic, number: int, dims: Index) -> Expr:
        """Return the term that a reduction adds to the accumulator of result ``number``."""
        join = generic.join(number)
        assert join is not None
        return _Body(self, generic, dims).value(join.term)

    def part(self, generic: Generic, value: ir.Value, dims: Index) -> Expr:
        """Return an intermediate scalar of ``generic`` that depends on no accumulator."""
        return _Body(self, generic, dims).value(value)

    def scalar(self, value: ir.Value | ir.Attribute) -> Expr:
        """Return a scalar of the kernel's body that depends on no tensor."""
        if isinstance(value, ir.Attribute):
            return attribute(value)
        if value in self.sizes:
            return self._size(self.sizes[value])
        op = value.owner.operation
        return write_scalar(op, [self.scalar(v) for v in op.operands], self.index_type)


def _place(pointer: str, at: Expr) -> str:
    return pointer if at.literal == 0 else f"{pointer} + {at}"


@dataclass(eq=False)
class _Body:
    """Region of one ``linalg.generic`` at one place, whose values are written on demand."""

    elements: Elements
    generic: Generic
    dims: Index
    made: dict[ir.Value, Expr] = field(default_factory=dict)

    def value(self, value: ir.Value) -> Expr:
        if value not in self.made:
            self.made[value] = self._value(value)
        return self.made[value]

    def _value(self, value: ir.Value) -> Expr:
        generic, elements = self.generic, self.elements
        if isinstance(value, ir.BlockArgument) and value.owner == generic.block:
            number = value.arg_number
            return elements.element(generic.operands[number], generic.operand_index(number, self.dims))
        op = generic.made_here(value)
        if op is None:
            return elements.scalar(value)
        if (loop := loop_of(value)) is not None:
            return elements.position(self.dims[loop])
        if op.name == "tensor.extract":
            return self._extracted(generic.extracts[value], [self.value(v) for v in list(op.operands)[1:]])
        if (argument := one_plus_erf(op)) is not None and self.is_narrow:
            made = write_one_plus_erf(self.value(argument))
        elif op.name == "math.exp" and str(value.type) == "f32" and elements.reads_narrow:
            made = write_fast_exp(self.value(op.operands[0]))
        else:
            made = write_scalar(op, [self.value(v) for v in op.operands], elements.index_type)
        once = len(list(value.uses)) == 1 and len(made.text) <= INLINE
        return made if once else elements.code.name(_NAMES.get(op.name, "t"), made)

    @cached_property
    def is_narrow(self) -> bool:
        """True if all yielded values are bf16, which have 8 bits of precision."""
        return all(str(v.type) == "bf16" for v in self.generic.yielded)

    def _extracted(self, extract: Extract, positions: list[Expr]) -> Expr:
        """Return the element that an extract reads at ``positions``."""
        index = extract.index(self.generic, self.dims)
        code, space = self.elements.code, self.elements.space
        for steps, position, value in zip(extract.steps, index, positions, strict=True):
            if steps is None:
                ((axis, _),) = position.terms
                value = code.name("picked", value)
                code.remember(("axis", axis, space if space in value.vary else None), value)
        return self.elements.element(extract.source, index)


_NAMES = {
    "arith.cmpf": "test",
    "arith.cmpi": "test",
    "arith.select": "chosen",
    "math.exp": "exp",
    "math.rsqrt": "scale",
}
"""Op -> name of its values; others are named ``t``."""
