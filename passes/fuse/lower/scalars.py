"""Builder of scalar expressions: ``arith`` and ``math`` ops in the region of a ``linalg.generic``.

A :class:`Scalar` has a torch dtype. A boolean is ``i1`` in a region, and a byte in memory. A Python number as
an operand becomes a constant of the other operand's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch_mlir import ir

from shardc.dialects.dist.build import i64
from shardc.dialects.kern.size import AnySize, Size
from shardc.dialects.kern.types import ELEMENTS
from shardc.dialects.steady import STEADY


class Scalar(NamedTuple):
    """Value in a region."""

    value: ir.Value
    dtype: torch.dtype


Operand = Scalar | float | int | bool

_FLOAT_PREDICATES = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13}
"""arith's CmpFPredicate (ArithBase.td): ordered, except for ``ne``, since NaN is unequal to everything."""
_INT_PREDICATES = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5}


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that ATen computes in: f32 for 16-bit floats, else the dtype itself."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


@cache
def _holds(dtype: torch.dtype, number: float) -> bool:
    """Return whether ``dtype`` holds ``number`` exactly. Cached: torch's answer takes 15 ms while tracing."""
    return torch.tensor(number, dtype=dtype).double().item() == number


def _wrapped(number: int, dtype: torch.dtype) -> int:
    """Return the signed integer of ``dtype``'s width that has the same bits."""
    bits = 8 * dtype.itemsize
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _binary(
    floats: str, ints: str = "", *, orders: bool = False
) -> Callable[[Scalars, Operand, Operand], Scalar]:
    """Return a method that builds ``arith.<floats>``, or ``arith.<ints>`` for integers if that is given.

    ``orders``: True if the result depends on the sign. Then uint8 operands are converted to int32 first.
    """

    def build(self: Scalars, x: Operand, y: Operand) -> Scalar:
        a, b = self.pair(x, y)
        if orders and a.dtype == torch.uint8:
            return self.cast(build(self, self.cast(a, torch.int32), self.cast(b, torch.int32)), a.dtype)
        name = floats if a.dtype.is_floating_point else ints or floats
        return self.op(f"arith.{name}", [a, b], a.dtype)

    return build


class Scalars:
    """Builder of scalars in one region. ``compute``: dtype that the present op computes in.

    ``index``: function that returns a symbolic size as a value of type ``index`` from outside the region.
    ``steady``: whether functions of the present op must have the same bits in all kernels.
    """

    def __init__(self, block: ir.Block, loc: ir.Location, index: Callable[[AnySize], ir.Value]) -> None:
        self._block, self._loc, self._context, self._index_of = block, loc, loc.context, index
        self._ip = ir.InsertionPoint(block)
        self._constants: dict[tuple[type, str, torch.dtype], Scalar] = {}
        self._types: dict[torch.dtype, ir.Type] = {}
        self.compute = torch.float32
        self.steady = False

    def type(self, dtype: torch.dtype) -> ir.Type:
        found = self._types.get(dtype)
        if found is None:
            text = "i1" if dtype == torch.bool else ELEMENTS[dtype]
            found = self._types[dtype] = ir.Type.parse(text, self._context)
        return found

    def op(
        self, name: str, operands: Sequence[Scalar], dtype: torch.dtype, **attributes: ir.Attribute
    ) -> Scalar:
        return Scalar(self._made(name, self.type(dtype), [x.value for x in operands], attributes), dtype)

    def _made(
        self,
        name: str,
        type_: ir.Type,
        values: list[ir.Value],
        attributes: dict[str, ir.Attribute] | None = None,
    ) -> ir.Value:
        return ir.Operation.create(name, [type_], values, attributes, loc=self._loc, ip=self._ip).result

    def constant(self, number: float | int | bool, dtype: torch.dtype) -> Scalar:
        """Return a number as ``dtype``.

        A float that ``dtype`` does not hold exactly is an f64 constant with a cast, so that the oracle,
        which computes in f64, reads the exact number.
        """
        key = (type(number), repr(number), dtype)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self._constant(number, dtype)
        return found

    def _constant(self, number: float | int | bool, dtype: torch.dtype) -> Scalar:
        if not dtype.is_floating_point:
            value = bool(number) if dtype == torch.bool else _wrapped(int(number), dtype)
            attribute = ir.IntegerAttr.get(self.type(dtype), int(value))
            return self.op("arith.constant", [], dtype, value=attribute)
        number = float(number)
        made = dtype if math.isnan(number) or _holds(dtype, number) else torch.float64
        with self._loc:
            attribute = ir.FloatAttr.get(self.type(made), number)
        return self.cast(self.op("arith.constant", [], made, value=attribute), dtype)

    def cast(self, x: Operand, dtype: torch.dtype) -> Scalar:
        """Return ``x`` as ``dtype``, rounded or truncated as by ``Tensor.to``."""
        if not isinstance(x, Scalar):
            return self.constant(x, dtype)
        if x.dtype == dtype:
            return x
        if dtype == torch.bool:
            return self.compare("ne", x, 0)
        if x.dtype.is_floating_point and dtype.is_floating_point:
            return self._cast_float(x, dtype)
        if x.dtype.is_floating_point and dtype.itemsize < 4:
            return self.cast(self.op("arith.fptosi", [x], torch.int32), dtype)
        if x.dtype.is_floating_point:
            return self.op("arith.fptosi", [x], dtype)
        if x.dtype == torch.uint8 and dtype.is_floating_point:
            return self.cast(self.op("arith.extui", [x], torch.int32), dtype)
        if dtype.is_floating_point:
            wider = wide(dtype)
            name = "arith.uitofp" if x.dtype == torch.bool else "arith.sitofp"
            return self.cast(self.op(name, [x], wider), dtype)
        if x.dtype != torch.bool and x.dtype.itemsize == dtype.itemsize:
            return Scalar(x.value, dtype)
        if x.dtype in (torch.bool, torch.uint8):
            return self.op("arith.extui", [x], dtype)
        return self.op("arith.extsi" if dtype.itemsize > x.dtype.itemsize else "arith.trunci", [x], dtype)

    def _cast_float(self, x: Scalar, dtype: torch.dtype) -> Scalar:
        if dtype.itemsize > x.dtype.itemsize:
            return self.op("arith.extf", [x], dtype)
        if (x.dtype == torch.float64 and dtype.itemsize == 2) or dtype.itemsize == x.dtype.itemsize:
            return self.cast(self.cast(x, torch.float32), dtype)  # through f32, like ATen
        return self.op("arith.truncf", [x], dtype)

    def pair(self, x: Operand, y: Operand) -> tuple[Scalar, Scalar]:
        """Return both operands as scalars of one dtype.

        Raises TypeError if their dtypes differ, or if both are Python numbers.
        """
        if isinstance(x, Scalar) and isinstance(y, Scalar):
            if x.dtype != y.dtype:
                raise TypeError(f"an operation on {x.dtype} and {y.dtype}")
            return x, y
        if isinstance(x, Scalar):
            return x, self.cast(y, x.dtype)
        if isinstance(y, Scalar):
            return self.cast(x, y.dtype), y
        raise TypeError("an operation on two numbers")

    add, sub, mul = _binary("addf", "addi"), _binary("subf", "subi"), _binary("mulf", "muli")
    maximum, minimum = (
        _binary("maximumf", "maxsi", orders=True),
        _binary("minimumf", "minsi", orders=True),
    )
    """Maximum and minimum; NaN if either operand is NaN."""
    div = _binary("divf")
    """Quotient of floats."""
    floor_divide = _binary("floordivsi", orders=True)
    """Floor division of integers; the divisor must not be 0."""

    def negate(self, x: Scalar) -> Scalar:
        return self.op("arith.negf", [x], x.dtype) if x.dtype.is_floating_point else self.sub(0, x)

    def bit(self, name: str, x: Operand, y: Operand) -> Scalar:
        """Return the ``and``, ``or`` or ``xor`` of integers or booleans."""
        a, b = self.pair(x, y)
        return self.op(f"arith.{name}i", [a, b], a.dtype)

    def logical_not(self, x: Scalar) -> Scalar:
        return self.bit("xor", self.cast(x, torch.bool), True)

    def math(self, name: str, *operands: Scalar) -> Scalar:
        """Return ``math.<name>`` of operands of one dtype."""
        marks = {STEADY: ir.UnitAttr.get(self._context)} if self.steady else {}
        return self.op(f"math.{name}", operands, operands[0].dtype, **marks)

    def compare(self, predicate: str, x: Operand, y: Operand) -> Scalar:
        """Return a comparison: ``eq``, ``ne``, ``lt``, ``le``, ``gt``, ``ge``; booleans: the first two."""
        a, b = self.pair(x, y)
        if a.dtype == torch.uint8:
            a, b = self.cast(a, torch.int32), self.cast(b, torch.int32)
        name, numbers = "arith.cmpi", _INT_PREDICATES
        if a.dtype.is_floating_point:
            name, numbers = "arith.cmpf", _FLOAT_PREDICATES
        return self.op(name, [a, b], torch.bool, predicate=i64(numbers[predicate], self._context))

    def select(self, condition: Scalar, x: Operand, y: Operand) -> Scalar:
        a, b = self.pair(x, y)
        return self.op("arith.select", [condition, a, b], a.dtype)

    def index(self, dim: int) -> Scalar:
        """Return the index of the loop over dim ``dim`` of the op, i64."""
        return self._from_index(self.position(dim))

    def position(self, of: int | Scalar) -> ir.Value:
        """Return the index of the loop over a dim, or an i64, as a value of type ``index``."""
        index = ir.IndexType.get(self._context)
        if isinstance(of, Scalar):
            return self._made("arith.index_cast", index, [self.cast(of, torch.int64).value])
        return self._made("linalg.index", index, [], {"dim": i64(of, self._context)})

    def extract(self, tensor: ir.Value, positions: Sequence[ir.Value], dtype: torch.dtype) -> Scalar:
        """Return the element of a tensor of ``dtype`` at ``positions``."""
        element = ir.RankedTensorType(tensor.type).element_type
        return self.load(self._made("tensor.extract", element, [tensor, *positions]), dtype)

    def size(self, size: AnySize, dtype: torch.dtype) -> Scalar:
        """Return a size as ``dtype``. A symbolic size must be among the node's ``sizes``."""
        if not isinstance(size, Size):
            return self.constant(size, dtype)
        return self.cast(self._from_index(self._index_of(size)), dtype)

    def _from_index(self, x: ir.Value) -> Scalar:
        return Scalar(self._made("arith.index_cast", self.type(torch.int64), [x]), torch.int64)

    def load(self, x: ir.Value, dtype: torch.dtype) -> Scalar:
        """Return a block argument as a scalar; a boolean's byte becomes ``i1``."""
        return Scalar(x if dtype != torch.bool else self._made("arith.trunci", self.type(dtype), [x]), dtype)

    def store(self, x: Scalar, dtype: torch.dtype) -> ir.Value:
        """Return a scalar as ``dtype`` in the form that memory has; a boolean becomes a byte."""
        x = self.cast(x, dtype)
        i8 = ir.IntegerType.get_signless(8, self._context)
        return x.value if dtype != torch.bool else self._made("arith.extui", i8, [x.value])


COMBINE = {"sum": Scalars.add, "product": Scalars.mul, "max": Scalars.maximum, "min": Scalars.minimum}
"""How each kind of reduction combines two elements."""
