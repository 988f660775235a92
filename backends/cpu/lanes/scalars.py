"""Builder of f32 arithmetic at the insertion point, on scalars or vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch_mlir import ir

ROUNDER, _ROUNDER_BITS = 1.5 * 2.0**23, 0x4B400000
"""Number whose addition rounds an f32 to an integer, in its last bits."""
ROUNDER_OF_F64 = 1.5 * 2.0**52
"""The same of an f64."""
NE = 1  # arith.cmpi predicate
OLT, OGT, OEQ, ULT, UNO = 4, 2, 1, 11, 14  # arith.cmpf predicates; ordered ones are false for NaN


class Scalars:
    """Builder of f32 arithmetic at the insertion point.

    ``shape``: shape of vectors; None for scalars. ``contract``: flag that allows only fused multiply-add.
    ``scales``: as in :func:`expand_math`.
    """

    def __init__(self, shape: list[int] | None, scales: bool) -> None:
        self.shape, self.scales = shape, scales
        self.float = self.of(ir.F32Type.get())
        self.integer = self.of(ir.IntegerType.get_signless(32))
        self.double = self.of(ir.F64Type.get())
        self.contract = ir.Attribute.parse("#arith.fastmath<contract>")

    def make(
        self, name: str, *operands: ir.Value, type_: ir.Type | None = None, **attributes: ir.Attribute
    ) -> ir.Value:
        types = [type_ or operands[0].type]
        return ir.Operation.create(name, types, list(operands), attributes).result

    def of(self, scalar: ir.Type) -> ir.Type:
        return scalar if self.shape is None else ir.VectorType.get(self.shape, scalar)

    def constant(self, type_: ir.Type, scalar: ir.Attribute) -> ir.Value:
        value = scalar if self.shape is None else ir.DenseElementsAttr.get_splat(type_, scalar)
        return self.make("arith.constant", type_=type_, value=value)

    def arithmetic(self, name: str, *operands: ir.Value) -> ir.Value:
        return self.make(name, *operands, fastmath=self.contract)

    def number(self, value: float) -> ir.Value:
        return self.constant(self.float, ir.FloatAttr.get(ir.F32Type.get(), value))

    def wide(self, value: float) -> ir.Value:
        """Return a number as an f64."""
        return self.constant(self.double, ir.FloatAttr.get(ir.F64Type.get(), value))

    def bits(self, value: int) -> ir.Value:
        return self.constant(self.integer, ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value))

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.arithmetic("arith.addf", a, b)

    def sub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.arithmetic("arith.subf", a, b)

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.arithmetic("arith.mulf", a, b)

    def div(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.arithmetic("arith.divf", a, b)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return self.arithmetic("math.fma", a, b, c)

    def polynomial(self, x: ir.Value, coefficients: list[float]) -> ir.Value:
        """Evaluate a polynomial, with the highest power's coefficient first, by Estrin's scheme.

        Horner's scheme needs fewer multiplications, but each depends on the one before, and a core processes
        too few elements at once to hide that latency.
        """
        constant = self.wide if x.type == self.double else self.number
        terms = [constant(c) for c in reversed(coefficients)]
        while len(terms) > 1:
            if len(terms) == 3:
                return self.fma(self.fma(terms[2], x, terms[1]), x, terms[0])
            pairs = [self.fma(high, x, low) for low, high in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[2 * len(pairs) :]
            x = self.mul(x, x)
        return terms[0]

    def compare(self, predicate: int, a: ir.Value, b: ir.Value) -> ir.Value:
        return self._compare("arith.cmpf", predicate, a, b)

    def is_set(self, n: ir.Value, bit: int) -> ir.Value:
        """Return whether ``bit`` (1, 2, 4, ...) of an i32 is set."""
        return self._compare("arith.cmpi", NE, self.make("arith.andi", n, self.bits(bit)), self.bits(0))

    def _compare(self, name: str, predicate: int, a: ir.Value, b: ir.Value) -> ir.Value:
        attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
        return self.make(name, a, b, type_=self.of(ir.IntegerType.get_signless(1)), predicate=attribute)

    def select(self, condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
        return self.make("arith.select", condition, yes, no, type_=yes.type)

    def clamp(self, x: ir.Value, low: float, high: float) -> ir.Value:
        """Clamp to ``low`` and ``high``; NaN stays NaN."""
        x = self.select(self.compare(OLT, x, self.number(low)), self.number(low), x)
        return self.select(self.compare(OGT, x, self.number(high)), self.number(high), x)

    def power_of_two(self, n: ir.Value) -> ir.Value:
        """Return 2**n, for an integer n in the range of a normal f32's exponent."""
        biased = self.make("arith.addi", n, self.bits(127))
        return self.make("arith.bitcast", self.make("arith.shli", biased, self.bits(23)), type_=self.float)

    def rounded(self, x: ir.Value, factor: float = 1.0) -> tuple[ir.Value, ir.Value]:
        """Round ``x * factor`` to an integer below 2**22; return it as f32 and, by its bits, as i32.

        A conversion to i32 would be undefined for NaN.
        """
        shifted = self.fma(x, self.number(factor), self.number(ROUNDER))
        bits = self.make("arith.bitcast", shifted, type_=self.integer)
        whole = self.sub(shifted, self.number(ROUNDER))
        return whole, self.make("arith.subi", bits, self.bits(_ROUNDER_BITS))

    def scaled(self, x: ir.Value, n: ir.Value) -> ir.Value:
        """Return x * 2**n, with overflow to infinity and gradual underflow."""
        if self.scales:  # the op of LLVM's intrinsic takes no vectors
            scalar = self.shape is None
            return self.make("llvm.intr.ldexp", x, n) if scalar else self.intrinsic("llvm.ldexp", x, n)
        half = self.make("arith.shrsi", n, self.bits(1))
        once = self.mul(x, self.power_of_two(half))
        return self.mul(once, self.power_of_two(self.make("arith.subi", n, half)))

    def intrinsic(self, name: str, *operands: ir.Value) -> ir.Value:
        """Call LLVM's intrinsic of that name. Its result has its first operand's type."""
        return call_intrinsic(name, [operands[0].type], operands).result


Expansion = Callable[..., ir.Value]
"""Function (scalars, operands...) -> result, which builds the arithmetic of a math function."""


def call_intrinsic(name: str, results: Sequence[ir.Type], operands: Sequence[ir.Value]) -> ir.Operation:
    """Call LLVM's intrinsic of that name."""
    attributes = {
        "intrin": ir.StringAttr.get(name),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
    }
    return ir.Operation.create("llvm.call_intrinsic", list(results), list(operands), attributes)
