"""Rules of convolutions of padded images: split dims get halos, other dims are padded on each rank.

At the outer edges halos hold the padding: zeros, or the other end for circular padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.rule import Local, Rule, rule_for
from shardc.dialects.rules.spatial.convolution import (
    FIRST_PIXELS,
    ConvolutionFactors,
    backward_rule,
    forward_rule,
    groups_and_bias,
)
from shardc.dialects.rules.spatial.neighbours import Halo

PADDED = "shardc.padded_convolution"
PADDED_BACKWARD = f"{PADDED}_backward"


@rule_for(PADDED)
def padded_convolution(call: OpCall) -> Rule:
    """Rule of ``(input, weight, bias) -> output``, a sum over input channels."""
    factors = ConvolutionFactors.of(call, call["input"], call["weight"], call.result)
    return replace(forward_rule(call, factors), lower=partial(_local, factors))


@rule_for(PADDED_BACKWARD)
def padded_convolution_backward(call: OpCall) -> Rule:
    """Rule of ``(grad_output, input, weight) -> (grad_input, grad_weight, grad_bias)``, by
    ``output_mask``.
    """
    factors = ConvolutionFactors.of(call, call["input"], call["weight"], call["grad_output"])
    return replace(backward_rule(call, factors), lower=partial(_local_backward, factors))


def _local(factors: ConvolutionFactors, local: Local) -> Sequence[Any]:
    halos, changed = _halos(factors, local), groups_and_bias(local)
    x = _padded(local, _extended(local, halos, local.args[0]), halos)
    bias = changed.get("bias", local.args[2])
    return [local.emit("aten.convolution", x, local.args[1], bias, *_settings(local, changed))]


def _local_backward(factors: ConvolutionFactors, local: Local) -> Sequence[Any]:
    """Compute gradients: remove padding, and return a halo's gradient to its owner."""
    halos, (grad, x, weight), mask = _halos(factors, local), local.args[:3], local.args[-1]
    changed: dict[str, object] = {"groups": local.size("g")} if local.spec["groups"] > 1 else {}
    extended = _extended(local, halos, x)
    made = local.results[2]
    sizes = made.shape if made is not None else (0,)
    padded = _padded(local, extended, halos)
    settings = _settings(local, changed)
    first, *others = local.emit("aten.convolution_backward", grad, padded, weight, sizes, *settings, mask)
    if mask[0]:
        first = _cut(local, first, extended, halos)
        for halo in reversed(halos):
            first = halo.returned(local, first)
    return [first, *others]


def _halos(factors: ConvolutionFactors, local: Local) -> list[Halo]:
    return [
        replace(windows.halo(f"y{d}", d + FIRST_PIXELS, count), ring=local.spec["ring"])
        for d, windows, count in factors.near(local)
    ]


def _extended(local: Local, halos: Sequence[Halo], x: Any) -> Any:
    for halo in halos:
        x = halo.extended(local, x)
    return x


def _settings(local: Local, changed: dict[str, object]) -> tuple[object, ...]:
    spec, none = local.spec, (0,) * len(local.spec["stride"])
    return spec["stride"], none, spec["dilation"], False, none, changed.get("groups", spec["groups"])


def _pairs(local: Local, halos: Sequence[Halo]) -> tuple[int, ...]:
    """Return the padding of dims that are not split, the last dim first."""
    cut = {halo.dim - FIRST_PIXELS for halo in halos}
    pairs = zip(local.spec["padding"], local.spec["behind"], strict=True)
    own = [(0, 0) if d in cut else pair for d, pair in enumerate(pairs)]
    return tuple(n for pair in reversed(own) for n in pair)


def _padded(local: Local, x: Any, halos: Sequence[Halo]) -> Any:
    pairs = _pairs(local, halos)
    if not any(pairs):
        return x
    if local.spec["ring"]:
        return local.emit("shardc.circular_pad", x, pairs)
    return local.emit("aten.constant_pad_nd", x, pairs, 0)


def _cut(local: Local, grad: Any, extended: Any, halos: Sequence[Halo]) -> Any:
    pairs = _pairs(local, halos)
    if not any(pairs):
        return grad
    if local.spec["ring"]:
        return local.emit("shardc.circular_pad_backward", grad, extended, pairs)
    return local.emit("aten.constant_pad_nd", grad, tuple(-n for n in pairs), 0)
