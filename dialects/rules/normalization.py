"""Rules of normalisations and softmax: normalised dims stay whole, all others may be split."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.rule import Dims, Linear, Local, Rule, emit_with, numbered, plain, rule_for

IN_GRADIENT = (frozenset({0}),)
"""Linear sets of backward operators: the output's gradient, always the first operand."""


@rule_for("aten.native_layer_norm")
def layer_norm(call: OpCall, reduce: str | None = None, linear: Linear = ()) -> Rule:
    """Rule of ``(input [n..., d...], weight [d...], bias [d...]) -> (out, mean [n..., 1...], rstd)``."""
    shape, inner_shape = call["input"].shape, tuple(call["normalized_shape"])
    outer = numbered("n", shape[: len(shape) - len(inner_shape)])
    inner = numbered("d", inner_shape)

    def dims(type_: TensorType | None) -> Dims:
        if type_ is None:
            return ()
        if type_.shape == shape:
            return plain((*outer, *inner))
        return plain(inner) if type_.shape == inner_shape else (*plain(outer), *(() for _ in inner))

    return Rule(
        tuple(map(dims, call.tensors)),
        tuple(map(dims, call.results)),
        {**outer, **inner},
        reduce=dict.fromkeys(outer, reduce) if reduce else {},
        replicate=frozenset(inner),
        linear=linear,
    )


@rule_for("aten.native_layer_norm_backward")
def layer_norm_backward(call: OpCall) -> Rule:
    """Rule of the backward; gradients of weight and bias are sums over outer dims."""
    return layer_norm(call, reduce="sum", linear=IN_GRADIENT)


def _group_sizes(call: OpCall) -> dict[str, int]:
    """Return sizes of the factors: ``n`` images, ``g`` groups of ``c`` channels, pixels ``x...``."""
    batch, channels, *pixels = call["input"].shape
    groups = call["group"]
    return {"n": batch, "g": groups, "c": channels // groups, **numbered("x", pixels)}


def _image(sizes: dict[str, int]) -> Dims:
    return (("n",), ("g", "c"), *plain(f for f in sizes if f.startswith("x")))


def _fewer_groups(local: Local) -> Sequence[object]:
    n, groups, channels = map(local.size, "ngc")
    return emit_with(local, N=n, C=groups * channels, group=groups)


@rule_for("aten.native_group_norm")
def group_norm(call: OpCall) -> Rule:
    """Rule of ``(input [n, (g c), x...], weight, bias) -> (out, mean [n, g], rstd [n, g])``."""
    sizes = _group_sizes(call)
    image, channels, statistics = _image(sizes), (("g", "c"),), (("n",), ("g",))
    return Rule(
        (image, *(channels for _ in call.tensors[1:])),
        (image, statistics, statistics),
        sizes,
        replicate=frozenset(sizes) - {"n", "g"},
        lower=_fewer_groups,
    )


@rule_for("aten.native_group_norm_backward")
def group_norm_backward(call: OpCall) -> Rule:
    """Rule of ``(grad_out, input, mean, rstd, weight) -> (grad_input, grad_weight, grad_bias)``."""
    sizes = _group_sizes(call)
    image, channels, statistics = _image(sizes), (("g", "c"),), (("n",), ("g",))
    made = zip((image, channels, channels), call.results, strict=True)
    return Rule(
        (image, image, statistics, statistics, *(channels for _ in call.tensors[4:])),
        tuple(dims if type_ is not None else () for dims, type_ in made),
        sizes,
        reduce={"n": "sum"},
        replicate=frozenset(sizes) - {"n", "g"},
        linear=IN_GRADIENT,
        lower=_fewer_groups,
    )


@rule_for("aten._softmax", "aten._log_softmax")
def softmax(call: OpCall, linear: Linear = (), neutral: tuple[float, ...] = (-inf,)) -> Rule:
    """Rule of softmax; the normalised dim stays whole, and its padding holds ``neutral`` in each operand."""
    sizes = numbered("n", call.result.shape)
    dims = plain(sizes)
    whole = {f"n{call['dim'] % len(sizes)}"} if sizes else set()
    operands = tuple(dims for _ in call.tensors)
    fills = dict.fromkeys(whole, neutral)
    return Rule(operands, (dims,), sizes, replicate=frozenset(whole), linear=linear, neutral=fills)


@rule_for("aten._softmax_backward_data", "aten._log_softmax_backward_data")
def softmax_backward(call: OpCall) -> Rule:
    """Rule of ``(grad_output, output) -> grad_input``."""
    return softmax(call, IN_GRADIENT, (0.0, -inf if "_log_" in call.target else 0.0))
