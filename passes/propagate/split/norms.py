"""Layer and group norm, forward and backward, written with sums that may be partial.

Forward sums twice: x, then the squared distances from its mean (E[x^2] - E[x]^2 would cancel). Backward sums
the gradient, and its product with the normalised input, in one reduction. Weights are split like the input.
"""

from __future__ import annotations

from torch_mlir import ir

from shardc.passes.propagate.split.writer import SplitWriter

Results = tuple[ir.Value, ir.Value, ir.Value]


def layer_norm(
    w: SplitWriter,
    x: ir.Value,
    normalized_shape: tuple[int, ...],
    weight: ir.Value | None,
    bias: ir.Value | None,
    eps: float,
) -> Results:
    """``(out, mean, rstd)``."""
    _, inner = _outer_and_inner(w, x, normalized_shape)
    normalised, mean, rstd = _normalise(w, x, inner, eps)
    return _scaled(w, normalised, weight, bias), mean, rstd


def layer_norm_backward(
    w: SplitWriter,
    grad: ir.Value,
    x: ir.Value,
    normalized_shape: tuple[int, ...],
    mean: ir.Value,
    rstd: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    output_mask: tuple[bool, ...],
) -> Results:
    """``(grad_input, grad_weight, grad_bias)``."""
    outer, inner = _outer_and_inner(w, x, normalized_shape)
    normalised = w.mul(w.sub(x, mean), rstd)
    made = _input_gradient(w, _scaled(w, grad, weight, None), normalised, rstd, inner)
    return made, w.sum(w.mul(grad, normalised), *outer, keepdim=False), w.sum(grad, *outer, keepdim=False)


def group_norm(
    w: SplitWriter,
    x: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    eps: float,
) -> Results:
    """``(out, mean [n, group], rstd [n, group])``."""
    grouped = _grouped(w, x, group)
    normalised, mean, rstd = _normalise(w, grouped, _inner(w, grouped), eps)
    made = _scaled(w, normalised, *(_channels(w, v, grouped) for v in (weight, bias)))
    return w.view(made, w.shape(x)), w.view(mean, (n, group)), w.view(rstd, (n, group))


def group_norm_backward(
    w: SplitWriter,
    grad: ir.Value,
    x: ir.Value,
    mean: ir.Value,
    rstd: ir.Value,
    weight: ir.Value | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    output_mask: tuple[bool, ...],
) -> Results:
    """``(grad_input, grad_weight [c], grad_bias [c])``."""
    grouped, above = _grouped(w, x, group), _grouped(w, grad, group)
    inner = _inner(w, grouped)
    statistics = (n, group, *(1 for _ in inner))
    rstd = w.view(rstd, statistics)
    normalised = w.mul(w.sub(grouped, w.view(mean, statistics)), rstd)
    scaled = _scaled(w, above, _channels(w, weight, grouped), None)
    made = _input_gradient(w, scaled, normalised, rstd, inner)
    others = (0, *inner[1:])
    of_weight = w.sum(w.mul(above, normalised), *others, keepdim=False)
    of_bias = w.sum(above, *others, keepdim=False)
    return w.view(made, w.shape(x)), w.view(of_weight, (c,)), w.view(of_bias, (c,))


def _outer_and_inner(w: SplitWriter, x: ir.Value, inner: tuple[int, ...]) -> tuple[range, range]:
    rank = len(w.shape(x))
    return range(rank - len(inner)), range(rank - len(inner), rank)


def _normalise(w: SplitWriter, x: ir.Value, dims: range, eps: float) -> Results:
    """Return ``x`` normalised over ``dims``, its mean, and the reciprocal of its standard deviation."""
    mean = w.mean(x, *dims)
    centred = w.sub(x, mean)
    variance = w.mean(w.mul(centred, centred), *dims)
    rstd = w.call("aten.rsqrt", w.call("aten.add.Scalar", variance, eps, 1))
    return w.mul(centred, rstd), mean, rstd


def _scaled(w: SplitWriter, x: ir.Value, weight: ir.Value | None, bias: ir.Value | None) -> ir.Value:
    scaled = x if weight is None else w.mul(x, weight)
    return scaled if bias is None else w.add(scaled, bias)


def _input_gradient(
    w: SplitWriter, grad: ir.Value, normalised: ir.Value, rstd: ir.Value, dims: range
) -> ir.Value:
    """Return the input's gradient: ``grad`` minus its mean and its component along the normalised input,
    scaled.
    """
    along = w.mul(normalised, w.mean(w.mul(grad, normalised), *dims))
    return w.mul(w.sub(w.sub(grad, w.mean(grad, *dims)), along), rstd)


def _grouped(w: SplitWriter, x: ir.Value, group: int) -> ir.Value:
    """``[n, c, pixels...]`` as ``[n, group, c / group, pixels...]``."""
    n, c, *pixels = w.shape(x)
    return w.view(x, (n, group, c // group, *pixels))


def _inner(w: SplitWriter, grouped: ir.Value) -> range:
    return range(2, len(w.shape(grouped)))


def _channels(w: SplitWriter, value: ir.Value | None, grouped: ir.Value) -> ir.Value | None:
    """A number for each channel, as ``[1, group, c / group, 1...]``."""
    if value is None:
        return None
    _, group, each, *pixels = w.shape(grouped)
    return w.view(value, (1, group, each, *(1 for _ in pixels)))
