"""A kernel's ``linalg`` body as tensors that can be asked for one element at an index.

This is a reading of the IR, not another form of it: what a value computes stands in its op alone.
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
    """A tensor of a body. ``shape`` holds numbers, or sizes in the symbols that the kernel takes."""

    shape: tuple[AnySize, ...]
    element: ir.Type


@dataclass(eq=False)
class Argument(Value):
    """Input ``position`` of the kernel, contiguous in memory."""

    position: int


@dataclass(eq=False)
class Splat(Value):
    """One scalar everywhere. ``scalar`` is the result of ops on scalars of the function's body."""

    scalar: ir.Value | ir.Attribute


@dataclass(eq=False)
class Undefined(Value):
    """``tensor.empty``: read by no one but the block argument of an op that ignores it."""


@dataclass(eq=False)
class Computed(Value):
    """Result ``number`` of ``generic``."""

    generic: Generic
    number: int

    def loops_at(self, index: Index) -> Index:
        """Where the loops stand when element ``index`` is made."""
        return self.generic.dims_at(self.number, index)


@dataclass(eq=False)
class View(Value):
    """The elements of ``source`` in the same row-major order under another shape. ``groups`` pairs the dims:
    of the result for each dim of the source, if ``expands``, else the other way round.
    """

    source: Value
    groups: list[list[int]]
    expands: bool

    @cached_property
    def follows(self) -> bool:
        """An index of the source is linear in an index of the view."""
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
    """Every ``steps``-th element of ``source`` from ``offsets`` on, in each dim."""

    source: Value
    offsets: list[int]
    steps: list[int]

    def source_index(self, index: Index) -> Index:
        found = zip(self.offsets, index, self.steps, strict=True)
        return tuple(Linear(constant=offset) + position * step for offset, position, step in found)


@dataclass(eq=False)
class Extract:
    """``tensor.extract``, number ``op`` of a body. ``loops``: the loop of each index, None: computed."""

    op: int
    source: Value
    loops: list[int | None]

    def index(self, generic: Generic, dims: Index) -> Index:
        """Where it reads when the loops stand at ``dims``."""
        return tuple(
            Linear.axis(Picked(generic.number, self.op, at, dims)) if loop is None else dims[loop]
            for at, loop in enumerate(self.loops)
        )


@dataclass(eq=False)
class Generic(GenericLoops):
    """A ``linalg.generic``, number ``number`` of the body's. ``operands``: the tensors that it reads
    (``inputs``), and starts from (``inits``). ``extracts``: what is read at computed indices, by the scalar
    made.
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
        """Of its loops."""
        return self.loop_sizes([v.shape for v in self.operands])

    @cached_property
    def is_reduction(self) -> bool:
        return any(r and size != 1 for r, size in zip(self.reduces, self.sizes, strict=True))

    @cached_property
    def read_operands(self) -> list[int]:
        """Numbers of the operands (inputs, then inits) that the body reads."""
        return [n for n, argument in enumerate(self.block.arguments) if any(True for _ in argument.uses)]

    def operand_index(self, number: int, dims: Index) -> Index:
        """Where operand ``number`` (inputs, then inits) is read when the loops stand at ``dims``."""
        return tuple(dims[loop] for loop in self.maps[number])

    def reads(self, dims: Index) -> Iterator[tuple[Value, Index]]:
        """The elements that its body reads when the loops stand at ``dims``."""
        for number in self.read_operands:
            yield self.operands[number], self.operand_index(number, dims)
        for extract in self.extracts.values():
            yield extract.source, extract.index(self, dims)

    def dims_at(self, result: int, index: Index) -> Index:
        """Where the loops stand when element ``index`` of ``result`` is made; reduction dims stand at 0."""
        at = dict(zip(self.maps[len(self.inputs) + result], index, strict=True))
        return tuple(at.get(loop, Linear()) for loop in range(len(self.reduces)))


@dataclass(eq=False)
class Graph:
    """The whole body: its arguments, its results, and its ops in order. ``in_place``: number of a result ->
    that of the argument whose memory it takes. ``flat``: sizes are any number.
    """

    name: str
    inputs: int
    arguments: list[Argument]
    """The inputs, in each of the shapes in which they are read."""
    results: list[Value]
    generics: list[Generic]
    views: list[View]
    computed: list[Computed]
    config: dict[str, int]
    in_place: dict[int, int]
    flat: bool
    symbols: list[Symbol]
    sizes: dict[ir.Value, AnySize]
    """The body's values of type ``index``."""
