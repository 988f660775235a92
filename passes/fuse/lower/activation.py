"""Activations and their gradients, by ATen's formulas."""

from __future__ import annotations

import math

from shardc.passes.fuse.lower.math import sigmoid
from shardc.passes.fuse.lower.scalars import Scalar, Scalars
from shardc.passes.fuse.lower.table import pointwise

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715


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
