"""``Symbols``: symbolic sizes of a block, read from the frontend's attributes, and their values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch_mlir import ir

from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.kern.size import (
    SHAPE,
    SHAPES,
    SYMBOLS,
    AnySize,
    Size,
    Symbol,
    read_shape,
    shape_map,
    symbols_of,
)


class Symbols:
    """Symbolic shapes of the values of a function's block; empty for a block without symbolic sizes."""

    def __init__(self, block: ir.Block) -> None:
        self._block = block
        self._numbers: dict[Symbol, ir.Value] = {}
        self._types: dict[ir.Type, TensorType | None] = {}
        attributes = block.owner.attributes
        hints = list(ir.DenseI64ArrayAttr(attributes[SYMBOLS])) if SYMBOLS in attributes else []
        maps = [ir.DictAttr(a) for a in attributes["arg_attrs"]] if hints else []
        self._arguments = [a[SHAPE] if SHAPE in a else None for a in maps]
        given = [(a, d, n) for a, map_ in enumerate(self._arguments) for d, n in _plain(map_)]
        # Integer arguments come first: their values need no new op.
        given.sort(key=lambda place: read_type(block.arguments[place[0]].type) is None)
        found = {n: (a, d) for a, d, n in given}
        self._symbols = [Symbol(n, hint, n in found) for n, hint in enumerate(hints)]
        self._given = {self._symbols[n]: place for n, place in found.items()}

    @property
    def any(self) -> bool:
        """True if the block has symbolic sizes."""
        return bool(self._symbols)

    def shape(self, value: ir.Value) -> tuple[AnySize, ...] | None:
        """Return the shape of a tensor, or an integer as a shape of one dim; None if it is unknown."""
        if not self._symbols:
            return None
        if isinstance(value, ir.BlockArgument):
            found = self._arguments[value.arg_number] if value.owner == self._block else None
        else:
            attributes = value.owner.attributes
            found = attributes[SHAPES][ir.OpResult(value).result_number] if SHAPES in attributes else None
        return None if found is None else read_shape(found, self._symbols)

    def type(self, value: ir.Value) -> TensorType | None:
        """Return the type of a tensor with its symbolic sizes; None for other values."""
        written = value.type
        if written not in self._types:
            self._types[written] = read_type(written)
        type_ = self._types[written]
        shape = None if type_ is None or type_.is_static else self.shape(value)
        return type_ if type_ is None or shape is None else sized(shape, type_.dtype)

    def known_type(self, value: ir.Value) -> TensorType:
        """Return the type of a value that is known to be a tensor."""
        type_ = self.type(value)
        assert type_ is not None
        return type_

    def note(self, op: ir.Operation, types: Sequence[TensorType]) -> None:
        """Write symbolic shapes to a new op. ``types``: types of its results."""
        if symbols_of(n for type_ in types for n in type_.shape):
            maps = [shape_map(type_.shape, self._symbols, op.context) for type_ in types]
            op.attributes[SHAPES] = ir.ArrayAttr.get(maps, op.context)

    def has(self, symbol: Symbol, read: Iterable[TensorType]) -> bool:
        """Return whether :meth:`number` finds ``symbol``, with tensors of the types ``read``."""
        return symbol.given or any(Size.of(symbol) in type_.shape for type_ in read)

    def integer(self, value: ir.Value) -> AnySize | None:
        """Return the symbolic value of an integer of the program; None if it is unknown."""
        shape = self.shape(value)
        return shape[0] if shape else None

    def number(
        self, symbol: Symbol, read: Sequence[tuple[ir.Value, TensorType]], ip: ir.InsertionPoint
    ) -> ir.Value:
        """Return ``symbol`` as an integer of the program: a constant, or a dim of an argument or ``read``."""
        if symbol.value is not None:
            return _constant(symbol.value, ip)
        if symbol not in self._given:
            size = Size.of(symbol)
            return next(_size_of(v, t.shape.index(size), ip) for v, t in read if size in t.shape)
        if symbol not in self._numbers:
            argument, dim = self._given[symbol]
            value = self._block.arguments[argument]
            at = ir.InsertionPoint.at_block_begin(self._block)
            self._numbers[symbol] = value if read_type(value.type) is None else _size_of(value, dim, at)
        return self._numbers[symbol]


def sized(shape: tuple[AnySize, ...], dtype: torch.dtype) -> TensorType:
    """Return a tensor type with symbolic sizes. Outside of fusion and kernels all sizes are numbers."""
    return TensorType(shape, dtype)  # pyright: ignore[reportArgumentType]


def _plain(attribute: ir.Attribute | None) -> list[tuple[int, int]]:
    """Return the dims that are a single symbol, each with the symbol's number."""
    if attribute is None:
        return []
    results = ir.AffineMapAttr(attribute).value.results
    return [(d, e.position) for d, e in enumerate(results) if isinstance(e, ir.AffineSymbolExpr)]


def _size_of(value: ir.Value, dim: int, ip: ir.InsertionPoint) -> ir.Value:
    number = _constant(dim, ip)
    operands, loc = [value, number], number.location
    return ir.Operation.create("torch.aten.size.int", [number.type], operands, loc=loc, ip=ip).result


def _constant(number: int, ip: ir.InsertionPoint) -> ir.Value:
    context = ip.block.owner.context
    integer, i64 = ir.Type.parse("!torch.int", context), ir.IntegerType.get_signless(64, context)
    attributes, loc = {"value": ir.IntegerAttr.get(i64, number)}, ir.Location.unknown(context)
    return ir.Operation.create("torch.constant.int", [integer], [], attributes, loc=loc, ip=ip).result
