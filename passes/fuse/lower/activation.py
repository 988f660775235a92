"""Lowerings of activations and their gradients, by ATen's formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardc.dialects.aten.call import OpCall
from shardc.passes.fuse.lower.math import sigmoid
from shardc.passes.fuse.lower.scalars import Operand, Scalar, Scalars
from shardc.passes.fuse.lower.table import lowers, point, pointwise, results
from shardc.passes.fuse.reading.builder import Builder
from shardc.passes.fuse.reading.graph import Value

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715
_SIXTH = float.fromhex("0x1.555556p-3")
"""1/6 rounded to f32. ATen uses this constant in f64, too."""


def _gelu(s: Scalars, x: Scalar, approximate: str = "none") -> Scalar:
    if approximate == "tanh":
        cube = s.mul(s.mul(x, x), x)
        inner = s.mul(s.add(x, s.mul(cube, _TANH_CUBE)), _TANH_SCALE)
        gate = s.math("tanh", inner)
    else:
        gate = s.math("erf", s.mul(x, math.sqrt(0.5)))
    return s.mul(s.mul(x, 0.5), s.add(gate, 1.0))


def _gelu_backward(s: Scalars, grad: Scalar, x: Scalar, approximate: str = "none") -> Scalar:
    if approximate == "tanh":
        square = s.mul(x, x)
        inner = s.mul(s.add(x, s.mul(s.mul(square, x), _TANH_CUBE)), _TANH_SCALE)
        gate = s.math("tanh", inner)
        slope = s.mul(s.add(s.mul(square, 3 * _TANH_CUBE), 1.0), _TANH_SCALE)
        right = s.mul(s.mul(s.mul(x, 0.5), s.sub(1.0, s.mul(gate, gate))), slope)
        left = s.mul(s.add(gate, 1.0), 0.5)
        return s.mul(grad, s.add(left, right))
    cdf = s.mul(s.add(s.math("erf", s.mul(x, math.sqrt(0.5))), 1.0), 0.5)
    pdf = s.mul(s.math("exp", s.mul(s.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return s.mul(grad, s.add(cdf, s.mul(x, pdf)))


def _silu_backward(s: Scalars, grad: Scalar, x: Scalar) -> Scalar:
    gate = sigmoid(s, x)
    return s.mul(s.mul(grad, gate), s.add(s.mul(x, s.sub(1.0, gate)), 1.0))


pointwise("relu", lambda s, x: s.maximum(x, 0))
pointwise("threshold_backward", lambda s, grad, x, bound: s.select(s.compare("le", x, bound), 0, grad))
pointwise("gelu", _gelu, heavy=True)
pointwise("gelu_backward", _gelu_backward, heavy=True)
pointwise("silu", lambda s, x: s.div(x, s.add(s.math("exp", s.negate(x)), 1.0)), heavy=True)
pointwise("silu_backward", _silu_backward, heavy=True)
pointwise("sigmoid_backward", lambda s, grad, y: s.mul(s.mul(grad, s.sub(1.0, y)), y))
pointwise("tanh_backward", lambda s, grad, y: s.mul(grad, s.sub(1.0, s.mul(y, y))))
pointwise("native_dropout_backward", lambda s, grad, mask, scale: s.mul(s.mul(grad, mask), scale))
pointwise("threshold", lambda s, x, bound, other: s.select(s.compare("le", x, bound), other, x))
pointwise("leaky_relu", lambda s, x, slope=0.01: _leaky(s, x, x, slope))
pointwise("leaky_relu_backward", lambda s, grad, x, slope, is_result: _leaky(s, x, grad, slope))
pointwise("_prelu_kernel", lambda s, x, weight: _leaky(s, x, x, weight))


def _leaky(s: Scalars, x: Scalar, y: Scalar, slope: Operand) -> Scalar:
    return s.select(s.compare("gt", x, 0), y, s.mul(y, slope))


@lowers("aten._prelu_kernel_backward")
def prelu_backward(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the gradients of ``x`` and of the weight, which has one value per element of ``x``."""
    grad, x, weight = values
    of_x, of_weight = results(call)

    def slope(s: Scalars, g: Scalar, x: Scalar, w: Scalar) -> Scalar:
        g, x, w = (s.cast(v, s.compute) for v in (g, x, w))
        return _leaky(s, x, g, w)

    def share(s: Scalars, g: Scalar, x: Scalar) -> Scalar:
        g, x = s.cast(g, s.compute), s.cast(x, s.compute)
        return s.select(s.compare("gt", x, 0), 0, s.mul(x, g))

    return [b.point(slope, [grad, x, weight], of_x), b.point(share, [grad, x], of_weight)]


def _elu(s: Scalars, x: Scalar, alpha: float = 1, scale: float = 1, inner: float = 1) -> Scalar:
    below = s.mul(s.math("expm1", s.mul(x, inner)), alpha * scale)
    return s.select(s.compare("le", x, 0), below, s.mul(x, scale))


def _elu_backward(
    s: Scalars, grad: Scalar, alpha: float, scale: float, inner: float, is_result: bool, x: Scalar
) -> Scalar:
    if is_result:
        below = s.mul(s.mul(grad, inner), s.add(x, alpha * scale))
    else:
        below = s.mul(s.mul(grad, inner * alpha * scale), s.math("exp", s.mul(x, inner)))
    return s.select(s.compare("le", x, 0), below, s.mul(grad, scale))


def _softplus(s: Scalars, x: Scalar, beta: float = 1, threshold: float = 20) -> Scalar:
    scaled = s.mul(x, beta)
    soft = s.div(s.math("log1p", s.math("exp", scaled)), beta)
    return s.select(s.compare("gt", scaled, threshold), x, soft)


def _softplus_backward(s: Scalars, grad: Scalar, x: Scalar, beta: float, threshold: float) -> Scalar:
    scaled = s.mul(x, beta)
    power = s.math("exp", scaled)
    return s.select(s.compare("gt", scaled, threshold), grad, s.div(s.mul(grad, power), s.add(power, 1.0)))


_SATURATED = 20.0
"""From here on, mish is x in f32 and f64."""


def _mish(s: Scalars, x: Scalar) -> Scalar:
    """``x tanh(log(1 + n))``, which is ``x n (n + 2) / (n (n + 2) + 2)``, with ``n = exp(x)``."""
    n = s.math("exp", s.minimum(x, _SATURATED))
    above = s.mul(n, s.add(n, 2.0))
    return s.mul(x, s.div(above, s.add(above, 2.0)))


def _mish_backward(s: Scalars, grad: Scalar, x: Scalar) -> Scalar:
    """``above / below + 4 x n (n + 1) / below ** 2``, named as in :func:`_mish`; NaN for infinity."""
    capped = s.sub(x, s.maximum(s.sub(x, _SATURATED), 0.0))
    n = s.math("exp", capped)
    above = s.mul(n, s.add(n, 2.0))
    below = s.add(above, 2.0)
    slope = s.mul(s.mul(s.mul(capped, 4.0), n), s.add(n, 1.0))
    return s.mul(grad, s.div(s.add(above, s.div(slope, below)), below))


def _six(s: Scalars, x: Scalar) -> Scalar:
    """Return ``x + 3``, clamped to [0, 6]."""
    return s.minimum(s.maximum(s.add(x, 3.0), 0.0), 6.0)


def _hardswish_backward(s: Scalars, grad: Scalar, x: Scalar) -> Scalar:
    middle = s.mul(grad, s.add(s.div(x, 3.0), 0.5))
    return s.select(s.compare("le", x, -3.0), 0, s.select(s.compare("lt", x, 3.0), middle, grad))


def _between(s: Scalars, x: Scalar, low: float, high: float, inside: Operand, outside: Operand) -> Scalar:
    within = s.bit("and", s.compare("gt", x, low), s.compare("lt", x, high))
    return s.select(within, inside, outside)


def _shrunk(s: Scalars, x: Scalar, bound: float, beyond: Scalar) -> Scalar:
    """Return 0 where ``-bound <= x <= bound``, and ``beyond`` elsewhere."""
    within = s.bit("and", s.compare("ge", x, -bound), s.compare("le", x, bound))
    return s.select(within, 0, beyond)


def _softshrink(s: Scalars, x: Scalar, bound: float = 0.5) -> Scalar:
    return _shrunk(s, x, bound, s.select(s.compare("gt", x, 0), s.sub(x, bound), s.add(x, bound)))


pointwise("elu", _elu, heavy=True)
pointwise("celu", lambda s, x, alpha=1: _elu(s, x, alpha, 1, 1 / alpha), heavy=True)
pointwise("elu_backward", _elu_backward, heavy=True)
pointwise("softplus", _softplus, heavy=True)
pointwise("softplus_backward", _softplus_backward, heavy=True)
pointwise("mish", _mish, heavy=True)
pointwise("mish_backward", _mish_backward, heavy=True)
pointwise("hardsigmoid", lambda s, x: s.div(_six(s, x), 6.0))
pointwise("hardsigmoid_backward", lambda s, grad, x: _between(s, x, -3.0, 3.0, s.mul(grad, _SIXTH), 0))
pointwise("hardswish", lambda s, x: s.div(s.mul(x, _six(s, x)), 6.0))
pointwise("hardswish_backward", _hardswish_backward)
pointwise("hardtanh", lambda s, x, low=-1, high=1: s.minimum(s.maximum(x, low), high))
pointwise("hardtanh_backward", lambda s, grad, x, low, high: _between(s, x, low, high, grad, 0))
pointwise("softshrink", _softshrink)
pointwise("softshrink_backward", lambda s, grad, x, bound: _shrunk(s, x, bound, grad))
pointwise("hardshrink", lambda s, x, bound=0.5: _shrunk(s, x, bound, x))
pointwise("hardshrink_backward", lambda s, grad, x, bound: _shrunk(s, x, bound, grad))


@lowers("aten.log_sigmoid_forward")
def log_sigmoid(b: Builder, call: OpCall, values: Sequence[Value]) -> list[Value]:
    """Lower the logarithm, and ``exp(-|x|)`` for the gradient, as in ATen's CPU kernel."""
    result, buffer = results(call)

    def power(s: Scalars, x: Scalar) -> Scalar:
        return s.math("exp", s.negate(s.math("absf", x)))

    def logarithm(s: Scalars, x: Scalar) -> Scalar:
        return s.sub(s.minimum(x, 0.0), s.math("log1p", power(s, x)))

    return [
        point(b, call, values, logarithm, heavy=True, type_=result),
        point(b, call, values, power, type_=buffer),
    ]


def _log_sigmoid_backward(s: Scalars, grad: Scalar, x: Scalar, power: Scalar) -> Scalar:
    share, below = s.div(power, s.add(power, 1.0)), s.compare("lt", x, 0.0)
    return s.mul(grad, s.select(below, s.sub(1.0, share), share))


pointwise("log_sigmoid_backward", _log_sigmoid_backward, heavy=True)
