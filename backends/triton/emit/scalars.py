"""Triton expressions for the ``arith`` and ``math`` ops of a kernel's regions.

As in ATen, divisions and square roots of f32 are rounded correctly (``tl.div_rn``), functions come from the
vendor's library (``libdevice``), and ``maximum`` propagates NaN.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import frexp

from torch_mlir import ir

from shardc.backends.triton.emit.text import VALUES, Expr, attribute, joined, literal
from shardc.diagnostics.triton import TritonKernelNotSupported

_ORDERED = ("==", ">", ">=", "<", "<=", "one", "ord")
_UNORDERED = ("ueq", "ugt", "uge", "ult", "ule", "!=", "uno")
_FLOAT_PREDICATES = ("", *_ORDERED, *_UNORDERED, "")
_INT_PREDICATES = ("==", "!=", "<", "<=", ">", ">=", "u<", "u<=", "u>", "u>=")
_RELATIONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_COMPARE = dict(zip(_INT_PREDICATES[:6], _RELATIONS, strict=True))
_FOLD = {"arith.addi": operator.add, "arith.subi": operator.sub, "arith.muli": operator.mul}
_SIGNS = "+ addf addi, - subf subi, * mulf muli, & andi, | ori, ^ xori, << shli, >> shrsi, // divsi, % remsi"
_INFIX = {f"arith.{op}": sign for sign, *ops in map(str.split, _SIGNS.split(",")) for op in ops}
_CALLS = {
    "math.absf": "tl.abs",
    "math.absi": "tl.abs",
    "math.ceil": "tl.ceil",
    "math.floor": "tl.floor",
    "math.powf": "libdevice.pow",
    "math.roundeven": "libdevice.nearbyint",
    "arith.remf": "libdevice.fmod",
}
_POWERS = ("exp", "exp2", "expm1", "log", "log1p", "log2", "rsqrt")
_OTHERS = ("copysign", "cos", "cosh", "erf", "log10", "round", "sin", "sinh", "tan", "tanh", "trunc")
_INVERSES = ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh")
_CALLS |= {f"math.{name}": f"libdevice.{name}" for name in (*_POWERS, *_OTHERS, *_INVERSES)}
_CONVERSIONS = ("arith.extf", "arith.truncf", "arith.sitofp", "arith.index_cast")
_LARGEST = {"arith.maximumf": "maximum", "arith.minimumf": "minimum"}


_ONE_PLUS_ERF = "_one_plus_erf"
HELPERS = {
    _ONE_PLUS_ERF: f'''@triton.jit
def {_ONE_PLUS_ERF}(x):
    """1 + erf(x) up to 5e-5 of it, for results in bf16: erfc(t) is 2 to the power of a polynomial."""
    t = tl.abs(x)
    power = t * -1.28844976e-05 + 3.60141217e-04
    power = t * power - 4.38777357e-03
    power = t * power + 3.11774575e-02
    power = t * power - 1.47903949e-01
    power = t * power - 9.20540690e-01
    power = t * power - 1.62717378e00
    complement = tl.exp2(t * power)
    return tl.where(x < 0, complement, 2.0 - complement)
'''
}
"""Text of functions that kernels call, by name."""


def one_plus_erf(op: ir.Operation) -> ir.Value | None:
    """Return ``x`` if an op computes 1 + ``erf(x)`` in f32; else None."""
    if op.name != "arith.addf" or str(op.results[0].type) != "f32":
        return None
    term, one = op.operands
    owner = term.owner
    if isinstance(owner, ir.Block) or owner.name != "math.erf" or len(list(term.uses)) > 1:
        return None
    return owner.operands[0] if _constant(one) == 1.0 else None


def _constant(value: ir.Value) -> float | None:
    """Return the number of a constant; None for another value."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return ir.FloatAttr(owner.attributes["value"]).value


def write_one_plus_erf(x: Expr) -> Expr:
    """Return ``1 + erf(x)`` with an accuracy for bf16 results.

    It has a third of the instructions of the library's erf. With the library's, they limit a GELU's kernel on
    an H200 to 0.59 of the copy rate.
    """
    return Expr(f"{_ONE_PLUS_ERF}({x.text})", "f32", x.vary)


def write_fast_exp(x: Expr) -> Expr:
    """Return ``exp(x)`` in f32 by two instructions, for numbers that were read as 16 bits.

    The relative error is up to ``abs(x) * 2**-23``. With the library's eight instructions, cross entropy and
    softmax of long rows take 1.15 and 1.18 times as long on an H200.
    """
    return Expr(f"tl.exp({x.text})", "f32", x.vary)


def write_scalar(op: ir.Operation, operands: Sequence[Expr], index_type: str) -> Expr:
    """Return the expression of ``op`` on ``operands``. ``index_type``: integer type for ``index``.

    Raises TritonKernelNotSupported for an unknown op.
    """
    name, type_ = op.name, str(op.results[0].type)
    if name == "arith.constant":
        return attribute(op.attributes["value"])
    if name in _FOLD and type_ != "i1" and all(e.literal is not None for e in operands):
        return literal(_FOLD[name](*(e.literal for e in operands)), type_)
    vary = joined(operands)
    made = _cast(name, operands[0], type_, index_type) if len(operands) == 1 else None
    if made is None:
        made = _operation(op, name, operands, type_)
    return made if made.literal is not None else Expr(made.text, type_, vary, None, made.atom)


def _operation(op: ir.Operation, name: str, operands: Sequence[Expr], type_: str) -> Expr:
    if name in _INFIX:
        if type_ == "i1" and name == "arith.addi":
            name = "arith.xori"
        return Expr(f"{operands[0]} {_INFIX[name]} {operands[1]}", type_, atom=False)
    if name in _CALLS:
        return _call(_CALLS[name], operands, type_)
    if name in ("arith.cmpf", "arith.cmpi"):
        return _compare(op, name, operands)
    if name == "arith.select":
        return _select(operands, type_)
    if name == "arith.divf":
        return _divide(operands, type_)
    if name in _LARGEST:
        a, b = _typed(operands, type_)
        return Expr(f"tl.{_LARGEST[name]}({a}, {b}, propagate_nan=tl.PropagateNan.ALL)", type_)
    if name in ("arith.maxsi", "arith.minsi"):
        a, b = _typed(operands, type_)
        return Expr(f"tl.{name[6:9]}imum({a}, {b})", type_)
    if name == "arith.negf":
        return Expr(f"-{operands[0]}", type_, atom=False)
    if name == "math.sqrt":
        return _call("tl.sqrt_rn" if type_ == "f32" else "tl.sqrt", operands, type_)
    if name == "math.isnan":
        return Expr(f"{operands[0]} != {operands[0]}", type_, atom=False)
    if name == "affine.apply":
        map_ = op.attributes["map"].value
        return _index(map_.results[0], operands[: map_.n_dims], operands[map_.n_dims :])
    if name == "arith.shrui":
        return Expr(f"({_unsigned(operands[0])} >> {operands[1]}).to({VALUES[type_]}, bitcast=True)", type_)
    if name == "arith.floordivsi":
        a, b = operands
        text = f"{a} // {b} - ((({a} % {b}) != 0) & (({a} < 0) != ({b} < 0))).to({VALUES[type_]})"
        return Expr(text, type_, atom=False)
    raise TritonKernelNotSupported(what=name)


def _index(expression: ir.AffineExpr, dims: Sequence[Expr], symbols: Sequence[Expr]) -> Expr:
    """Return an index that MLIR combined from others: sums and multiples."""
    if isinstance(expression, ir.AffineDimExpr):
        return dims[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return symbols[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return literal(expression.value, "index")
    for kind, sign in ((ir.AffineAddExpr, "+"), (ir.AffineMulExpr, "*")):
        if isinstance(expression, kind):
            left, right = (_index(e, dims, symbols) for e in (expression.lhs, expression.rhs))
            return Expr(f"{left} {sign} {right}", "index", atom=False)
    raise TritonKernelNotSupported(what=f"the index expression {expression}")


def _call(function: str, operands: Sequence[Expr], type_: str) -> Expr:
    return Expr(f"{function}({', '.join(e.text for e in _typed(operands, type_))})", type_)


def _typed(operands: Sequence[Expr], type_: str) -> list[Expr]:
    """Return the operands, with literals as tensors of ``type_`` for functions that do not convert them."""
    return [full(e) if e.literal is not None and type_ != "f64" else e for e in operands]


def full(e: Expr) -> Expr:
    """Return a number as a scalar tensor of its own type."""
    return Expr(f"tl.full([], {e.text}, {VALUES[e.type]})", e.type) if e.type in VALUES else e


def _divide(operands: Sequence[Expr], type_: str) -> Expr:
    a, b = operands
    if type_ != "f32":
        return Expr(f"{a} / {b}", type_, atom=False)
    if b.literal and 2.0**-60 <= abs(b.literal) <= 2.0**60 and abs(frexp(b.literal)[0]) == 0.5:
        return Expr(f"{a} * {literal(1 / b.literal, type_)}", type_, atom=False)  # a power of 2: exact
    return _call("tl.div_rn", operands, type_)


def _compare(op: ir.Operation, name: str, operands: Sequence[Expr]) -> Expr:
    floats = name == "arith.cmpf"
    predicates = _FLOAT_PREDICATES if floats else _INT_PREDICATES
    sign = predicates[ir.IntegerAttr(op.attributes["predicate"]).value]
    a, b = operands
    if not floats and sign in _COMPARE and a.literal is not None and b.literal is not None:
        return literal(_COMPARE[sign](a.literal, b.literal), "i1")
    if sign == "uno":
        return Expr(f"({a} != {a}) | ({b} != {b})", "i1", atom=False)
    if sign == "ord":
        return Expr(f"({a} == {a}) & ({b} == {b})", "i1", atom=False)
    if sign.startswith("u") and not floats:
        return Expr(f"{_unsigned(a)} {sign[1:]} {_unsigned(b)}", "i1", atom=False)
    if sign not in _COMPARE:
        raise TritonKernelNotSupported(what=f"the comparison {sign!r} of floats")
    return Expr(f"{a} {sign} {b}", "i1", atom=False)


def _select(operands: Sequence[Expr], type_: str) -> Expr:
    condition, a, b = operands
    if condition.literal is not None:
        return a if condition.literal else b
    if a.literal is not None and b.literal is not None and type_ not in ("f64", "index"):
        a = full(a)
    return Expr(f"tl.where({condition.text}, {a.text}, {b.text})", type_)


def _unsigned(e: Expr) -> str:
    if e.literal is not None:
        return str(int(e.literal) & ((1 << int(e.type[1:])) - 1))
    return f"{e}.to({VALUES[e.type].replace('int', 'uint')}, bitcast=True)"


def _cast(name: str, x: Expr, type_: str, index_type: str) -> Expr | None:
    """Return the expression of a conversion; None for other ops."""
    if x.literal is not None and name in (*_CONVERSIONS, "arith.extsi", "arith.extui"):
        number = x.literal if not (name == "arith.extsi" and x.type == "i1") else -int(x.literal)
        return literal(number, type_)
    to = f".to({VALUES.get(type_, index_type)})"
    if name in (*_CONVERSIONS, "arith.fptosi"):
        return Expr(f"{x}{to}", type_)
    if name == "arith.trunci":
        return Expr(f"({x} & 1) != 0", type_, atom=False) if type_ == "i1" else Expr(f"{x}{to}", type_)
    if name in ("arith.extui", "arith.uitofp"):
        return Expr(f"{x if x.type == 'i1' else _unsigned(x)}{to}", type_)
    if name == "arith.extsi":
        return Expr(f"-{x}{to}", type_, atom=False) if x.type == "i1" else Expr(f"{x}{to}", type_)
    return None
