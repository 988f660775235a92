"""Writer of kernels. A body is written once; kernels of the same structure get a copy.

The structure of a kernel determines its body. Equal layers of a model have kernels of equal structure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Unpack

from torch_mlir import ir

from shardc.dialects.dist.build import At
from shardc.dialects.kern.kernel import kernel, kernel_like, kernel_name
from shardc.dialects.kern.size import Symbol
from shardc.dialects.kern.types import builtin_type
from shardc.passes.fuse.bodies.body import Body
from shardc.passes.fuse.bodies.flat import FLAT, body_text, is_flat
from shardc.passes.fuse.reading.graph import Node, Value
from shardc.passes.fuse.reading.space import Atoms, Space
from shardc.passes.fuse.reading.symbols import Symbols
from shardc.passes.fuse.reading.unit import Unit


@dataclass
class Written:
    """A kernel whose body was written. ``inputs`` are the numbers of its tensors in its structure."""

    op: ir.Operation
    inputs: list[int]
    symbols: list[Symbol]

    @cached_property
    def text(self) -> str:
        """See :func:`body_text`."""
        return body_text(self.op)


class Bodies:
    """The bodies of a module's kernels. ``rounding`` as in :class:`Body`."""

    def __init__(self, rounding: str) -> None:
        self.rounding = rounding
        self._by_structure: dict[Hashable, Written] = {}
        self._by_name: dict[str, Written] = {}

    def write(
        self, name: str, unit: Unit, results: Sequence[Value], symbols: Symbols, **at: Unpack[At]
    ) -> tuple[list[ir.Value], ir.Operation]:
        """Write a kernel of ``unit`` in a block with these ``symbols``; return its ``results`` and the op."""
        key, tensors = structure(unit.nodes, unit.space, results)
        written = self._by_structure.get(key)
        if written is None:
            loc, body = at["loc"], Body(unit.nodes, unit.space, results, self.rounding)
            inputs = [in_program(value) for value in body.inputs]
            arguments = [builtin_type(value.type, loc.context) for value in inputs]
            types, shapes = [value.type for value in results], [value.type.shape for value in inputs]
            sizes = {"symbols": body.symbols, "shapes": shapes}
            ins = _operands(inputs, body.symbols, symbols, at["ip"])
            block, made, op = kernel(name, ins, arguments, types, **sizes, **at)
            body.write(block, shapes, loc)
            if is_flat(op):
                op.attributes[FLAT] = ir.UnitAttr.get(op.context)
            numbers = [tensors.index(value) for value in body.inputs]
            written = self._by_structure[key] = Written(op, numbers, body.symbols)
        else:
            inputs = [in_program(tensors[number]) for number in written.inputs]
            ins = _operands(inputs, written.symbols, symbols, at["ip"])
            made, op = kernel_like(written.op, name, ins, **at)
        self._by_name[name] = written
        return made, op

    def text(self, op: ir.Operation) -> str:
        """See :func:`body_text`."""
        written = self._by_name.get(kernel_name(op))
        return body_text(op) if written is None else written.text


def _operands(
    inputs: Sequence[Value], sizes: Sequence[Symbol], symbols: Symbols, ip: ir.InsertionPoint
) -> list[ir.Value]:
    """Return the tensors, then an integer for each of ``sizes``."""
    tensors = [(value.ir, value.type) for value in inputs if value.ir is not None]
    assert len(tensors) == len(inputs)
    return [ssa for ssa, _ in tensors] + [symbols.number(size, tensors, ip) for size in sizes]


def in_program(value: Value) -> Value:
    """Return ``value``, or its view if a call outside kernels returns the value as a view."""
    if value.ir is not None or value.node is None:
        return value
    return next((view for view in value.node.others if view.ir is not None), value)


def structure(nodes: Sequence[Node], space: Space, results: Sequence[Value]) -> tuple[Hashable, list[Value]]:
    """Return the structure of a kernel of ``nodes`` with these ``results``, and its tensors by number.

    The structure has each node's computation, the types of its tensors, and the dims over which it reads
    them: all inputs of :class:`~shardc.passes.fuse.bodies.body.Body`. Tensors and dims are numbered in order
    of first use.
    """
    values: dict[Value, int] = {}
    atoms: dict[int, int] = {}
    found: list[Hashable] = []

    def named(group: Iterable[int]) -> Atoms:
        return tuple([atoms.setdefault(atom, len(atoms)) for atom in space.resolve(group)])

    for node in nodes:
        for access in node.accesses:
            value = access.base
            if value not in values:
                values[value] = len(values)
                found.append((value.type, in_program(value).type))
            found.append(values[value])
            found += [
                (named(dim.atoms), dim.size, dim.offset, dim.step, dim.sliced, dim.gathered, dim.number)
                for dim in access.dims
            ]
        values[node.out] = len(values)
        found.append((node.what, tuple(map(named, (*node.out_dims, node.reduced, *node.indices)))))
    found += [(values[result.node.out], result.type) for result in results if result.node is not None]
    return (tuple(found), tuple(space.sizes[atom] for atom in atoms)), list(values)
