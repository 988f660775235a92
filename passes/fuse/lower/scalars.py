"""Scalar expressions of a kernel: ``arith`` and ``math`` ops in the region of a ``linalg.generic``, built
from Python.

A :class:`Scalar` knows its dtype as torch names it (booleans are ``i1`` here, bytes in memory). Where a
method takes a number, that becomes a constant of the other operand's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch_mlir import ir

from shardc.dialects.kern.size import AnySize, Size
from shardc.dialects.kern.types import ELEMENTS


class Scalar(NamedTuple):
    """One value in a region."""

    value: ir.Value
    dtype: torch.dtype


Operand = Scalar | float | int | bool

_FLOAT_PREDICATES = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13}
"""arith's CmpFPredicate (ArithBase.td): the ordered ones, but for ``ne``, as a NaN is unequal to
everything.
"""
_INT_PREDICATES = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5}


def wide(dtype: torch.dtype) -> torch.dtype:
    """What ATen computes in: f32 for the 16-bit floats, else the dtype itself."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


@cache
def _holds(dtype: torch.dtype, number: float) -> bool:
    """Whether a float of ``dtype`` is exactly ``number``. Remembered:
    while a graph is traced, asking torch takes 15 ms.
    """
    return torch.tensor(number, dtype=dtype).double().item() == number


class Scalars:
    """Builds into one region. ``compute`` is the dtype that the op being built computes in.

    ``index`` gives symbolic sizes as values of type ``index`` from outside of the region.
    """

    def __init__(self, block: ir.Block, loc: ir.Location, index: Callable[[AnySize], ir.Value]) -> None:
        self._block, self._loc, self._context, self._index_of = block, loc, loc.context, index
        self._ip = ir.InsertionPoint(block)
        self._constants: dict[tuple[type, str, torch.dtype], Scalar] = {}
        self._types: dict[torch.dtype, ir.Type] = {}
        self.compute = torch.float32

    def type(self, dtype: torch.dtype) -> ir.Type:
        found = self._types.get(dtype)
        if found is None:
            text = "i1" if dtype == torch.bool else ELEMENTS[dtype]
            found = self._types[dtype] = ir.Type.parse(text, self._context)
        return found

    def op(
        self, name: str, operands: Sequence[Scalar], dtype: torch.dtype, **attributes: ir.Attribute
    ) -> Scalar:
        values = [x.value for x in operands]
        made = ir.Operation.create(name, [self.type(dtype)], values, attributes, loc=self._loc, ip=self._ip)
        return Scalar(made.result, dtype)

    def constant(self, number: float | int | bool, dtype: torch.dtype) -> Scalar:
        """A number as ``dtype``. One that f32 cannot hold is rounded from f64, so that the oracle has it
        exactly.
        """
        key = (type(number), repr(number), dtype)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self._constant(number, dtype)
        return found

    def _constant(self, number: float | int | bool, dtype: torch.dtype) -> Scalar:
        if not dtype.is_floating_point:
            value = bool(number) if dtype == torch.bool else int(number)
            return self.op(
                "arith.constant", [], dtype, value=ir.IntegerAttr.get(self.type(dtype), int(value))
            )
        number = float(number)
        made = dtype if math.isnan(number) or _holds(dtype, number) else torch.float64
        with self._loc:
            attribute = ir.FloatAttr.get(self.type(made), number)
        return self.cast(self.op("arith.constant", [], made, value=attribute), dtype)

    def cast(self, x: Operand, dtype: torch.dtype) -> Scalar:
        """``x`` as ``dtype``, rounded or cut off as ``Tensor.to`` does it."""
        if not isinstance(x, Scalar):
            return self.constant(x, dtype)
        if x.dtype == dtype:
            return x
        if dtype == torch.bool:
            return self.compare("ne", x, 0)
        if x.dtype.is_floating_point and dtype.is_floating_point:
            return self._cast_float(x, dtype)
        if x.dtype.is_floating_point:
            return self.op("arith.fptosi", [x], dtype)
        if dtype.is_floating_point:
            wider = wide(dtype)
            name = "arith.uitofp" if x.dtype == torch.bool else "arith.sitofp"
            return self.cast(self.op(name, [x], wider), dtype)
        if x.dtype == torch.bool:
            return self.op("arith.extui", [x], dtype)
        return self.op("arith.extsi" if dtype.itemsize > x.dtype.itemsize else "arith.trunci", [x], dtype)

    def _cast_float(self, x: Scalar, dtype: torch.dtype) -> Scalar:
        if dtype.itemsize > x.dtype.itemsize:
            return self.op("arith.extf", [x], dtype)
        if (x.dtype == torch.float64 and dtype.itemsize == 2) or dtype.itemsize == x.dtype.itemsize:
            return self.cast(self.cast(x, torch.float32), dtype)  # as ATen does: by way of f32
        return self.op("arith.truncf", [x], dtype)

    def pair(self, x: Operand, y: Operand) -> tuple[Scalar, Scalar]:
        """Both as scalars of one dtype; raises TypeError if they have two, or are both numbers."""
        if isinstance(x, Scalar) and isinstance(y, Scalar):
            if x.dtype != y.dtype:
                raise TypeError(f"an operation on {x.dtype} and {y.dtype}")
            return x, y
        if isinstance(x, Scalar):
            return x, self.cast(y, x.dtype)
        if isinstance(y, Scalar):
            return self.cast(x, y.dtype), y
        raise TypeError("an operation on two numbers")

    def _binary(self, floats: str, ints: str, x: Operand, y: Operand) -> Scalar:
        a, b = self.pair(x, y)
        return self.op(f"arith.{floats if a.dtype.is_floating_point else ints}", [a, b], a.dtype)

    def add(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("addf", "addi", x, y)

    def sub(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("subf", "subi", x, y)

    def mul(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("mulf", "muli", x, y)

    def div(self, x: Operand, y: Operand) -> Scalar:
        """Of floats."""
        a, b = self.pair(x, y)
        return self.op("arith.divf", [a, b], a.dtype)

    def floor_divide(self, x: Operand, y: Operand) -> Scalar:
        """Of integers; the divisor must not be 0."""
        a, b = self.pair(x, y)
        return self.op("arith.floordivsi", [a, b], a.dtype)

    def maximum(self, x: Operand, y: Operand) -> Scalar:
        """NaN if either is."""
        return self._binary("maximumf", "maxsi", x, y)

    def minimum(self, x: Operand, y: Operand) -> Scalar:
        return self._binary("minimumf", "minsi", x, y)

    def negate(self, x: Scalar) -> Scalar:
        return self.op("arith.negf", [x], x.dtype) if x.dtype.is_floating_point else self.sub(0, x)

    def bit(self, name: str, x: Operand, y: Operand) -> Scalar:
        """``and``, ``or``, ``xor`` of integers or booleans."""
        a, b = self.pair(x, y)
        return self.op(f"arith.{name}i", [a, b], a.dtype)

    def logical_not(self, x: Scalar) -> Scalar:
        return self.bit("xor", self.cast(x, torch.bool), True)

    def math(self, name: str, *operands: Scalar) -> Scalar:
        """``math.<name>`` of floats of one dtype."""
        return self.op(f"math.{name}", operands, operands[0].dtype)

    def compare(self, predicate: str, x: Operand, y: Operand) -> Scalar:
        """``eq``, ``ne``, ``lt``, ``le``, ``gt`` or ``ge``; of booleans only the first two."""
        a, b = self.pair(x, y)
        floating = a.dtype.is_floating_point
        number = (_FLOAT_PREDICATES if floating else _INT_PREDICATES)[predicate]
        i64 = ir.IntegerType.get_signless(64, self._context)
        predicate_attr = ir.IntegerAttr.get(i64, number)
        return self.op(
            "arith.cmpf" if floating else "arith.cmpi", [a, b], torch.bool, predicate=predicate_attr
        )

    def select(self, condition: Scalar, x: Operand, y: Operand) -> Scalar:
        a, b = self.pair(x, y)
        return self.op("arith.select", [condition, a, b], a.dtype)

    def index(self, dim: int) -> Scalar:
        """Where the loop over dim ``dim`` of the op stands, i64."""
        operands, types = [self.position(dim)], [self.type(torch.int64)]
        made = ir.Operation.create("arith.index_cast", types, operands, loc=self._loc, ip=self._ip)
        return Scalar(made.result, torch.int64)

    def position(self, of: int | Scalar) -> ir.Value:
        """Where the loop over a dim of the op stands, or an i64, as a value of type ``index``."""
        index, i64 = ir.IndexType.get(self._context), ir.IntegerType.get_signless(64, self._context)
        name, operands, attributes = "arith.index_cast", [], {}
        if isinstance(of, Scalar):
            operands = [self.cast(of, torch.int64).value]
        else:
            name, attributes = "linalg.index", {"dim": ir.IntegerAttr.get(i64, of)}
        return ir.Operation.create(name, [index], operands, attributes, loc=self._loc, ip=self._ip).result

    def extract(self, tensor: ir.Value, positions: Sequence[ir.Value], dtype: torch.dtype) -> Scalar:
        """The element of a tensor of ``dtype`` at ``positions``."""
        element = ir.RankedTensorType(tensor.type).element_type
        operands = [tensor, *positions]
        made = ir.Operation.create("tensor.extract", [element], operands, loc=self._loc, ip=self._ip)
        return self.load(made.result, dtype)

    def size(self, size: AnySize, dtype: torch.dtype) -> Scalar:
        """A size as ``dtype``. Where it is symbolic, the node's ``sizes`` must have it."""
        if not isinstance(size, Size):
            return self.constant(size, dtype)
        operands, loc = [self._index_of(size)], self._loc
        made = ir.Operation.create(
            "arith.index_cast", [self.type(torch.int64)], operands, loc=loc, ip=self._ip
        )
        return self.cast(Scalar(made.result, torch.int64), dtype)

    def load(self, x: ir.Value, dtype: torch.dtype) -> Scalar:
        """A block argument as a scalar: a byte in memory becomes a truth value."""
        if dtype != torch.bool:
            return Scalar(x, dtype)
        made = ir.Operation.create("arith.trunci", [self.type(dtype)], [x], loc=self._loc, ip=self._ip)
        return Scalar(made.result, dtype)

    def store(self, x: Scalar, dtype: torch.dtype) -> ir.Value:
        """A scalar as ``dtype``, as it stands in memory."""
        x = self.cast(x, dtype)
        if dtype != torch.bool:
            return x.value
        i8 = ir.IntegerType.get_signless(8, self._context)
        return ir.Operation.create("arith.extui", [i8], [x.value], loc=self._loc, ip=self._ip).result
