"""View of a kernel's ``linalg`` body as tensors whose elements can be requested by index.

It refers to the IR and is no second form of it: only a value's op says what it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torch_mlir import ir

from shardc.backends.body.linear import Index, Linear, Picked, row_major
from shardc.dialects.kern.generic import GenericLoops
from shardc.dialects.kern.size import AnySize, Symbol


@dataclass(eq=False)
class Value:
    """Tensor of a body. ``shape``: numbers, or sizes in terms of the kernel's symbols."""

    shape: tuple[AnySize, ...]
    element: ir.Type


@dataclass(eq=False)
class Argument(Value):
    """Input number ``position`` of the kernel, contiguous in memory."""

    position: int


@dataclass(eq=False)
class Splat(Value):
    """Tensor with the same scalar everywhere. ``scalar``: result of scalar ops in the function's body."""

    scalar: ir.Value | ir.Attribute


@dataclass(eq=False)
class Undefined(Value):
    """``tensor.empty``. Only the block argument of an op that ignores it reads it."""


@dataclass(eq=False)
class Computed(Value):
    """Result number ``number`` of ``generic``."""

    generic: Generic
    number: int

    def loops_at(self, index: Index) -> Index:
        """Return the loops' positions at which element ``index`` is computed."""
        return self.generic.dims_at(self.number, index)


@dataclass(eq=False)
class View(Value):
    """Elements of ``source``, in the same row-major order, under another shape.

    ``groups``: if ``expands``, the result's dims for each dim of the source, otherwise the reverse.
    """

    source: Value
    groups: list[list[int]]
    expands: bool

    @cached_property
    def follows(self) -> bool:
        """True if an index of the source is linear in an index of the view."""
        shape = self.source.shape
        return self.expands or all(sum(shape[d] != 1 for d in group) <= 1 for group in self.groups)

    def source_index(self, index: Index) -> Index:
        if self.expands:
            parts = (([index[d] for d in g], [self.shape[d] for d in g]) for g in self.groups)
            return tuple(row_major(tuple(index), tuple(shape)) for index, shape in parts)
        found = [Linear()] * len(self.source.shape)
        for position, group in zip(index, self.groups, strict=True):
            for dim in group:
                if self.source.shape[dim] != 1:
                    found[dim] = position
        return tuple(found)


@dataclass(eq=False)
class Slice(Value):
    """Elements of ``source`` from ``offsets`` on, with ``steps``, in each dim."""

    source: Value
    offsets: list[int]
    steps: list[int]

    def source_index(self, index: Index) -> Index:
        found = zip(self.offsets, index, self.steps, strict=True)
        return tuple(Linear(constant=offset) + position * step for offset, position, step in found)


Steps = tuple[dict[int, int], int]
"""Index that is linear in the loops: a factor for some of them, and a constant."""


@dataclass(eq=False)
class Extract:
    """``tensor.extract``, op number ``op`` of a body. ``steps``: each index; None if it is not linear.

    ``unit_steps``: for each index, the loops with which it moves by one, except where a comparison changes.
    """

    op: int
    source: Value
    steps: list[Steps | None]
    unit_steps: list[frozenset[int]]

    def index(self, generic: Generic, dims: Index) -> Index:
        """Return the index that it reads when the loops are at ``dims``."""
        return tuple(
            Linear.axis(Picked(generic.number, self.op, at, dims, self.unit_steps[at]))
            if steps is None
            else sum((dims[loop] * factor for loop, factor in steps[0].items()), Linear(constant=steps[1]))
            for at, steps in enumerate(self.steps)
        )


@dataclass(eq=False)
class Generic(GenericLoops):
    """``linalg.generic``, number ``number`` of the body.

    ``operands``: the tensors that it reads (``inputs``), then those with initial values (``inits``).
    ``extracts``: reads at computed indices, by their scalar results.
    """

    operands: list[Value]
    number: int
    extracts: dict[ir.Value, Extract]

    @cached_property
    def inputs(self) -> list[Value]:
        return self.operands[: self.input_count]

    @cached_property
    def inits(self) -> list[Value]:
        return self.operands[self.input_count :]

    @cached_property
    def sizes(self) -> tuple[AnySize, ...]:
        """Sizes of its loops."""
        return self.loop_sizes([v.shape for v in self.operands])

    @cached_property
    def is_reduction(self) -> bool:
        return any(r and size != 1 for r, size in zip(self.reduces, self.sizes, strict=True))

    @cached_property
    def read_operands(self) -> list[int]:
        """Return the numbers of the operands (inputs, then inits) that the body reads."""
        return [n for n, argument in enumerate(self.block.arguments) if any(True for _ in argument.uses)]

    def operand_index(self, number: int, dims: Index) -> Index:
        """Return the index of operand ``number`` (inputs, then inits) that is read at ``dims``."""
        return tuple(dims[loop] for loop in self.maps[number])

    def reads(self, dims: Index, result: int | None = None) -> Iterator[tuple[Value, Index]]:
        """Yield the elements that the body reads with its loops at ``dims``, for one result or for all."""
        needed = None if result is None else self.needed(result)
        for number in self.read_operands:
            if needed is None or self.block.arguments[number] in needed:
                yield self.operands[number], self.operand_index(number, dims)
        for value, extract in self.extracts.items():
            if needed is None or value in needed:
                yield extract.source, extract.index(self, dims)

    def needed(self, result: int) -> frozenset[ir.Value]:
        """Return the values of the body, arguments among them, from which ``result`` is computed."""
        if result not in self._needed:
            wanted = {self.yielded[result]}
            for op in reversed(self.body_ops):
                if not wanted.isdisjoint(op.results):
                    wanted.update(op.operands)
            self._needed[result] = frozenset(wanted)
        return self._needed[result]

    @cached_property
    def _needed(self) -> dict[int, frozenset[ir.Value]]:
        return {}

    def dims_at(self, result: int, index: Index) -> Index:
        """Return the loops' positions for element ``index`` of ``result``, with reduction dims at 0."""
        at = dict(zip(self.maps[len(self.inputs) + result], index, strict=True))
        return tuple(at.get(loop, Linear()) for loop in range(len(self.reduces)))


@dataclass(eq=False)
class Graph:
    """Whole body: its arguments, its results, and its ops in order.

    ``in_place``: number of a result -> number of the argument whose memory it reuses. ``flat``: True if the
    kernel takes any number of elements.
    """

    name: str
    inputs: int
    arguments: list[Argument]
    """Inputs, once for each shape in which they are read."""
    results: list[Value]
    generics: list[Generic]
    views: list[View]
    computed: list[Computed]
    config: dict[str, int]
    in_place: dict[int, int]
    flat: bool
    symbols: list[Symbol]
    sizes: dict[ir.Value, AnySize]
    """Values of type ``index`` in the body, in terms of the symbols."""
