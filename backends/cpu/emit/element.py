"""Generation of one element of a body's tensor, as scalar ops where it is needed."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from torch_mlir import ir
from torch_mlir.dialects import arith, memref

from shardc.backends.body.graph import Argument, Computed, Extract, Generic, Slice, Splat, Value, View
from shardc.backends.body.linear import Axis, Index, Linear, row_major
from shardc.backends.body.roots import base
from shardc.backends.cpu.object_code.marks import REASSOCIATE, copied
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern.generic import loop_of
from shardc.dialects.kern.size import AnySize, Size, Symbol, evaluate, hint

Count = ir.Value | AnySize
"""Value of type index, or a number or size that is converted to one."""


@dataclass(eq=False)
class Place:
    """Place in the loops: positions of the axes, and values already computed there or in outer places.

    ``bodies``: scalars of ops with several results, of which only some were wanted.
    """

    axes: dict[Axis, ir.Value] = field(default_factory=dict)
    known: ChainMap[object, ir.Value] = field(default_factory=ChainMap[object, ir.Value])
    bodies: ChainMap[tuple[Generic, Index], dict[ir.Value, ir.Value]] = field(default_factory=ChainMap)

    def scalars(self, generic: Generic, dims: Index) -> dict[ir.Value, ir.Value]:
        """Return the scalars of a body at ``dims`` that are known here; new ones may be added."""
        key = (generic, dims)
        if key not in self.bodies.maps[0]:
            self.bodies[key] = dict(self.bodies.get(key, {}))
        return self.bodies[key]

    def inside(self, axes: dict[Axis, ir.Value]) -> Place:
        return Place({**self.axes, **axes}, self.known.new_child(), self.bodies.new_child())


@dataclass(eq=False)
class Kept:
    """Value stored for later stages: at ``offset``, in elements, of a buffer that begins at ``start``."""

    buffer: ir.Value
    offset: Linear
    start: ir.Value | None = None


@dataclass(eq=False)
class Elements:
    """Generator of elements.

    ``buffers``: values that are in memory as a whole. ``kept``: values of the row, stored at one index.
    ``symbols``: the function's arguments for symbols. ``sizes``: the body's ``index`` values in terms of
    symbols. ``merged``: axes with the value 0 in offsets (see
    :func:`shardc.backends.body.nest.merge_axes`).
    """

    entry: ir.Block
    buffers: dict[Value, ir.Value]
    symbols: Mapping[Symbol, ir.Value] = field(default_factory=dict)
    sizes: dict[ir.Value, AnySize] = field(default_factory=dict)
    kept: dict[tuple[Value, Index], Kept] = field(default_factory=dict)
    merged: set[Axis] = field(default_factory=set)
    constants: dict[AnySize, ir.Value] = field(default_factory=dict)
    copied: dict[ir.Value | ir.Attribute, ir.Value] = field(default_factory=dict)

    def number(self, value: Count) -> ir.Value:
        """Return a number or size as an index, computed once at the function's entry."""
        if isinstance(value, ir.Value):
            return value
        if value not in self.constants:
            if isinstance(value, Size):
                times, plus = (partial(self._at_entry, op) for op in (arith.muli, arith.addi))
                self.constants[value] = evaluate(value, self.symbols.__getitem__, self.number, times, plus)
            else:
                with ir.InsertionPoint.at_block_begin(self.entry):
                    self.constants[value] = arith.constant(ir.IndexType.get(), value)
        return self.constants[value]

    def _at_entry(self, op: Callable[[ir.Value, ir.Value], ir.Value], a: ir.Value, b: ir.Value) -> ir.Value:
        with _after([a, b], self.entry):
            return op(a, b)

    def spread(self, sizes: Mapping[Axis, AnySize], flat: ir.Value) -> dict[Axis, ir.Value]:
        """Split a position along several axes, the last being the fastest, into a position on each."""
        found = {}
        for at, (axis, size) in reversed(list(enumerate(sizes.items()))):
            count = self.number(size)
            found[axis] = arith.remui(flat, count) if at else flat
            flat = arith.divui(flat, count) if at else flat
        return found

    def position(self, expression: Linear, place: Place) -> ir.Value:
        """Compute an index expression."""
        if (found := place.known.get(expression)) is not None:
            return found
        total: ir.Value | None = None
        terms = [(place.axes[a], factor) for a, factor in expression.terms if a not in self.merged]
        for axis, factor in sorted(terms, key=lambda term: -abs(hint(term[1]))):
            part = axis if factor == 1 else arith.muli(axis, self.number(factor))
            total = part if total is None else arith.addi(total, part)
        if expression.constant != 0 or total is None:
            constant = self.number(expression.constant)
            total = constant if total is None else arith.addi(total, constant)
        place.known[expression] = total
        return total

    def element(self, value: Value, index: Index, place: Place) -> ir.Value:
        """Return element ``index`` of ``value``, computed at most once in each place."""
        if isinstance(value, Splat):
            return self.scalar(value.scalar)
        if (found := place.known.get((value, index))) is not None:
            return found
        if kept := self.kept.get((value, index)):
            made = self.load(kept.buffer, self.kept_position(kept, place), value.element)
        elif value in self.buffers:
            made = self._in_memory(value, value, index, place)
        elif isinstance(value, Slice):
            made = self.element(value.source, value.source_index(index), place)
        elif isinstance(value, View):
            made = self._through_view(value, index, place)
        elif isinstance(value, Computed):
            dims = value.generic.dims_at(value.number, index)
            made = self._computed(value, dims, place)
        else:
            raise KernelNotSupported(what=f"a read of a tensor that nothing wrote ({type(value).__name__})")
        place.known[(value, index)] = made
        return made

    def _computed(self, value: Computed, dims: Index, place: Place) -> ir.Value:
        """Return a value that is computed at ``dims``, from as much of its op as it needs."""
        key = (value.generic, value.number, dims)
        if key not in place.known:
            several = len(value.generic.yielded) > 1
            (place.known[key],) = self.results(
                value.generic, dims, {}, place, value.number if several else None
            )
        return place.known[key]

    def kept_position(self, kept: Kept, place: Place) -> ir.Value:
        """Return the position of an element in the buffer of ``kept``."""
        position = self.position(kept.offset, place)
        return position if kept.start is None else arith.subi(position, kept.start)

    def _through_view(self, value: View, index: Index, place: Place) -> ir.Value:
        if value.follows:
            return self.element(value.source, value.source_index(index), place)
        source = base(value)
        if isinstance(source, Splat):
            return self.scalar(source.scalar)
        return self._in_memory(source, value, index, place)

    def _in_memory(self, source: Value, value: Value, index: Index, place: Place) -> ir.Value:
        """Load element ``index`` of ``value``, which is in the memory of ``source``."""
        position = self.position(row_major(index, value.shape), place)
        return self.load(self.buffers[source], position, value.element)

    def results(
        self,
        generic: Generic,
        dims: Index,
        accumulators: dict[int, ir.Value],
        place: Place,
        result: int | None = None,
    ) -> list[ir.Value]:
        """Return the values that ``generic`` yields at ``dims``.

        ``accumulators``: values of its inits. ``result``: the one result that is wanted; None for all of
        them.
        """

        needed = None if result is None else generic.needed(result)
        operands = place.scalars(generic, dims) if needed is not None else dict[ir.Value, ir.Value]()

        def scalar(value: ir.Value) -> ir.Value:
            return operands[value] if value in operands else self.scalar(value)

        def is_wanted(value: ir.Value) -> bool:
            return needed is None or (value in needed and value not in operands)

        for number in generic.read_operands:
            argument, index = generic.block.arguments[number], generic.operand_index(number, dims)
            if is_wanted(argument):
                made = accumulators.get(number - len(generic.inputs))
                operands[argument] = made or self.element(generic.operands[number], index, place)
        joins = {join.op for each in accumulators if (join := generic.join(each)) is not None}
        for op in generic.body_ops:
            if not is_wanted(op.results[0]):
                continue
            if (loop := loop_of(op.results[0])) is not None:
                operands[op.results[0]] = self.position(dims[loop], place)
                continue
            if op.name == "tensor.extract":
                extract = generic.extracts[op.results[0]]
                positions = [scalar(v) for v in list(op.operands)[1:]]
                operands[op.results[0]] = self._extracted(generic, extract, positions, dims, place)
                continue
            copy = copied(op, [scalar(v) for v in op.operands])
            if op in joins and "fastmath" in copy.attributes:
                copy.attributes["fastmath"] = ir.Attribute.parse(REASSOCIATE)
            operands.update(zip(op.results, copy.results, strict=True))
        return [scalar(v) for v in generic.yielded] if result is None else [scalar(generic.yielded[result])]

    def _extracted(
        self, generic: Generic, extract: Extract, positions: list[ir.Value], dims: Index, place: Place
    ) -> ir.Value:
        """Return the element that an extract reads at ``positions``."""
        index = extract.index(generic, dims)
        for steps, position, value in zip(extract.steps, index, positions, strict=True):
            if steps is None:
                ((axis, _),) = position.terms
                place.axes[axis] = value
        return self.element(extract.source, index, place)

    def part(self, generic: Generic, value: ir.Value, dims: Index, place: Place) -> ir.Value:
        """Compute an intermediate scalar of ``generic`` at ``dims`` that depends on no accumulator."""
        key = (generic, value)
        if (found := place.known.get(key)) is not None:
            return found
        if isinstance(value, ir.BlockArgument) and value.owner == generic.block:
            number = value.arg_number
            made = self.element(generic.operands[number], generic.operand_index(number, dims), place)
        elif (op := generic.made_here(value)) is None:
            made = self.scalar(value)
        elif (loop := loop_of(value)) is not None:
            made = self.position(dims[loop], place)
        elif op.name == "tensor.extract":
            positions = [self.part(generic, v, dims, place) for v in list(op.operands)[1:]]
            made = self._extracted(generic, generic.extracts[value], positions, dims, place)
        else:
            made = copied(op, [self.part(generic, v, dims, place) for v in op.operands]).results[0]
        place.known[key] = made
        return made

    def scalar(self, value: ir.Value | ir.Attribute) -> ir.Value:
        """Return a scalar that depends on no tensor, computed once at the function's entry."""
        if value not in self.copied:
            if isinstance(value, ir.Attribute):
                with ir.InsertionPoint.at_block_begin(self.entry):
                    self.copied[value] = arith.constant(value.type, value)
            elif value in self.sizes:
                self.copied[value] = self.number(self.sizes[value])
            else:
                op = value.owner
                read = [self.scalar(v) for v in op.operands]
                with _after(read, self.entry):
                    self.copied[value] = copied(op.operation, read).results[0]
        return self.copied[value]

    def load(self, buffer: ir.Value, position: ir.Value, element: ir.Type) -> ir.Value:
        loaded = memref.load(buffer, [position])
        return arith.trunci(element, loaded) if loaded.type != element else loaded

    def fetch(self, value: Argument, position: ir.Value, level: int) -> None:
        """Prefetch an argument's element into the first or second cache."""
        locality = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4 - level)
        flags = {"isWrite": ir.BoolAttr.get(False), "isDataCache": ir.BoolAttr.get(True)}
        attributes = {**flags, "localityHint": locality}
        ir.Operation.create("memref.prefetch", [], [self.buffers[value], position], attributes)

    def store(self, value: ir.Value, buffer: ir.Value, position: ir.Value) -> None:
        held = ir.MemRefType(buffer.type).element_type
        memref.store(arith.extui(held, value) if value.type != held else value, buffer, [position])


def _after(values: list[ir.Value], entry: ir.Block) -> ir.InsertionPoint:
    """Return the first insertion point after ``values``, at the function's start if possible."""
    made = {v.owner.operation for v in values if not isinstance(v, ir.BlockArgument)}
    ops = list(entry.operations)
    at = max((at for at, op in enumerate(ops, 1) if op.operation in made), default=0)
    return ir.InsertionPoint(ops[at]) if at < len(ops) else ir.InsertionPoint(entry)
