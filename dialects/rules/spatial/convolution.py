"""Rules of convolutions and their backward, including transposed and grouped ones.

Input channels are ``(g i)`` and output channels ``(g o)``: g groups, each of i input and o output channels. A
dim of pixels may be split if the input has exactly stride times as many pixels as the output: the input dim
is ``(y s)``, y windows that begin s pixels apart, and the output dim y. Windows that reach into neighbouring
blocks get a halo. In a transposed convolution the output is ``(y s)``. Windows that neither overlap nor leave
gaps (patch embeddings, 1x1 convolutions) need no halo: an input dim is ``(y z)``. Other dims of pixels stay
whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.matmul import on_first
from shardc.dialects.rules.rule import Dim, Dims, Local, Rule, emit_with, rule_for
from shardc.dialects.rules.spatial.neighbours import Halo, Windows, part, setting_at

LINEAR_WITHOUT_BIAS = (frozenset({0}), frozenset({1}))
LINEAR_WITH_BIAS = (frozenset({0, 2}), frozenset({1, 2}))
FIRST_PIXELS = 2
"""The first dim of pixels, after batch and channels."""


@dataclass
class ConvolutionFactors:
    """The factors of one convolution of ``image`` [N, C, pixels...] to ``made`` [N, C', pixels...]."""

    sizes: dict[str, int]
    windows: tuple[Windows, ...]
    transposed: bool

    @staticmethod
    def of(call: OpCall, image: TensorType, weight: TensorType, made: TensorType) -> ConvolutionFactors:
        groups, transposed = call["groups"], call.target.startswith("aten.") and call["transposed"]
        o = made.shape[1] // groups
        sizes = {"n": image.shape[0], "g": groups, "o": o, "i": image.shape[1] // groups}
        windows = []
        for d, (x, z, y) in enumerate(zip(image.shape[2:], weight.shape[2:], made.shape[2:], strict=True)):
            settings = (setting_at(call[a], d) for a in ("stride", "padding", "dilation"))
            found = Windows(*((y, x) if transposed else (x, y)), z, *settings)
            windows.append(found)
            sizes |= {f"y{d}": found.y, f"z{d}": z}
            if found.aligned and not (found.patch and not transposed):
                sizes[f"s{d}"] = found.step
            elif not found.patch or transposed:
                sizes[f"x{d}"] = found.x
        return ConvolutionFactors({f: n for f, n in sizes.items() if n > 1}, tuple(windows), transposed)

    def dim(self, *factors: str) -> Dim:
        return tuple(f for f in factors if f in self.sizes)

    def kinds(self, factors: Sequence[str]) -> dict[str, str]:
        return {f: "sum" for f in factors if f in self.sizes}

    def _pixels(self, large: bool) -> Dims:
        """Return the dims of pixels: of the side with one pixel for each window, or of the ``large`` side."""
        if not large:
            return tuple(self.dim(f"y{d}") for d in range(len(self.windows)))
        return tuple(map(self._large, range(len(self.windows))))

    def _large(self, d: int) -> Dim:
        windows = self.windows[d]
        if windows.patch and not self.transposed:
            return self.dim(f"y{d}", f"z{d}")
        return self.dim(f"y{d}", f"s{d}") if windows.aligned else self.dim(f"x{d}")

    @property
    def image(self) -> Dims:
        return (self.dim("n"), self.dim("g", "i"), *self._pixels(large=not self.transposed))

    @property
    def made(self) -> Dims:
        return (self.dim("n"), self.dim("g", "o"), *self._pixels(large=self.transposed))

    @property
    def weight(self) -> Dims:
        channels = self.dim("g", "i"), self.dim("o")
        if not self.transposed:
            channels = self.dim("g", "o"), self.dim("i")
        return (*channels, *(self.dim(f"z{d}") for d in range(len(self.windows))))

    @property
    def traded(self) -> frozenset[str]:
        """The factors of windows that reach into neighbouring blocks if they are split."""
        near = (f"y{d}" for d, w in enumerate(self.windows) if w.aligned and (self.transposed or not w.patch))
        return frozenset(f for f in near if f in self.sizes)

    @property
    def cut(self) -> tuple[str, ...]:
        """The factors of windows that may be split."""
        free = (f"y{d}" for d, w in enumerate(self.windows) if w.patch and not self.transposed)
        return tuple(f for f in (*self.traded, *free) if f in self.sizes)

    def whole(self) -> frozenset[str]:
        """The factors of pixels that must stay whole."""
        return frozenset({f for f in self.sizes if f[0] in "xyzs"} - set(self.cut))

    def near(self, local: Local) -> list[tuple[int, Windows, int]]:
        """Return the split dims whose windows need halos: dim, windows, and the number of a rank's
        windows.
        """
        found = ((d, w, f"y{d}") for d, w in enumerate(self.windows))
        return [(d, w, local.size(f)) for d, w, f in found if f in self.traded and local.ways(f) > 1]


def _setting(local: Local, name: str, changed: dict[int, int]) -> tuple[int, ...]:
    """Return a setting of all spatial dims, with the values in ``changed`` replaced."""
    count = len(local.spec["weight"].shape) - FIRST_PIXELS
    return tuple(changed.get(d, setting_at(local.spec[name], d)) for d in range(count))


def groups_and_bias(local: Local) -> dict[str, object]:
    """Return this rank's ``groups`` and ``bias``: if input channels are split, only the first ranks add
    it.
    """
    changed: dict[str, object] = {"groups": local.size("g")} if local.spec["groups"] > 1 else {}
    if local.spec["bias"] is not None and local.ways("i") > 1:
        changed["bias"] = on_first(local, "i", local.args[2])
    return changed


def _local_convolution(factors: ConvolutionFactors, local: Local) -> Sequence[object]:
    changed, near = groups_and_bias(local), factors.near(local)
    if factors.transposed:
        return [_local_transposed(local, near, changed)]
    if near:
        x = local.args[0]
        for d, windows, count in near:
            x = windows.halo(f"y{d}", d + FIRST_PIXELS, count).extended(local, x)
        changed |= {"input": x, "padding": _setting(local, "padding", {d: 0 for d, *_ in near})}
    return [emit_with(local, **changed)]


def _local_transposed(local: Local, near: list[tuple[int, Windows, int]], changed: dict[str, object]) -> Any:
    """Convolve the input with its halo. The result is larger than the block, so ``padding`` crops both
    ends.
    """
    if not near:
        return emit_with(local, **changed)
    x, padding, rest, cut = local.args[0], {}, {}, []
    for d, w, count in near:
        before, after = (w.reach - w.margin) // w.step, -(-w.margin // w.step)
        x = Halo(f"y{d}", d + FIRST_PIXELS, count, before, after).extended(local, x)
        padding[d] = w.margin + before * w.step
        lacking = w.step * (1 - after + before) + 2 * w.margin - w.reach - 1
        rest[d] = max(lacking, 0)
        cut += [(d + FIRST_PIXELS, count * w.step)] if lacking < 0 else []
    settings = _setting(local, "padding", padding), _setting(local, "output_padding", rest)
    made = emit_with(local, **changed, input=x, padding=settings[0], output_padding=settings[1])
    for dim, size in cut:
        made = part(local, made, dim, 0, size)
    return made


@rule_for("aten.convolution")
def convolution(call: OpCall) -> Rule:
    """Rule of ``(input, weight, bias) -> output``, a sum over input channels."""
    factors = ConvolutionFactors.of(call, call["input"], call["weight"], call.result)
    special = bool(factors.traded) or "g" in factors.sizes or call["bias"] is not None
    return replace(
        forward_rule(call, factors), lower=partial(_local_convolution, factors) if special else None
    )


def forward_rule(call: OpCall, factors: ConvolutionFactors) -> Rule:
    """Return the rule of a convolution, without its lowering."""
    bias, operands = call["bias"], (factors.image, factors.weight)
    return Rule(
        operands if bias is None else (*operands, (factors.dim("g", "o"),)),
        (factors.made,),
        factors.sizes,
        reduce=factors.kinds("i"),
        replicate=factors.whole(),
        linear=LINEAR_WITHOUT_BIAS if bias is None else LINEAR_WITH_BIAS,
        traded=factors.traded,
    )


def _local_backward(factors: ConvolutionFactors, local: Local) -> Sequence[object]:
    """Compute gradients on a rank: halos of the large side come from neighbours, and their gradients
    return.
    """
    changed: dict[str, object] = {"groups": local.size("g")} if local.spec["groups"] > 1 else {}
    if local.results[2] is not None:
        changed["bias_sizes"] = local.results[2].shape
    near = factors.near(local)
    if not near:
        return emit_with(local, **changed)
    halos = [windows.halo(f"y{d}", d + FIRST_PIXELS, count) for d, windows, count in near]
    large = "grad_output" if factors.transposed else "input"
    changed[large] = reduce(
        lambda x, halo: halo.extended(local, x), halos, local.args[0 if factors.transposed else 1]
    )
    changed["padding"] = _setting(local, "padding", {d: 0 for d, *_ in near})
    if factors.transposed:
        return _local_transposed_backward(local, near, changed)
    first, *others = emit_with(local, **changed)
    if local.spec["output_mask"][0]:
        first = reduce(lambda x, halo: halo.returned(local, x), reversed(halos), first)
    return [first, *others]


def _local_transposed_backward(
    local: Local, near: list[tuple[int, Windows, int]], changed: dict[str, object]
) -> Sequence[object]:
    """Compute gradients of a transposed convolution; the bias's gradient is computed without the halo."""
    rest = {d: max(-windows.after, 0) for d, windows, _ in near}
    changed["output_padding"] = _setting(local, "output_padding", rest)
    changed["output_mask"] = (*local.spec["output_mask"][:2], False)
    image, weight, bias = emit_with(local, **changed)
    if not local.spec["output_mask"][2]:
        return image, weight, bias
    grad = local.args[0]
    dims = tuple(d for d in range(len(local.spec["weight"].shape)) if d != 1)
    return image, weight, local.emit("aten.sum.dim_IntList", grad, dims, False, None)


@rule_for("aten.convolution_backward")
def convolution_backward(call: OpCall) -> Rule:
    """Rule of ``(grad_output, input, weight) -> (grad_input, grad_weight, grad_bias)``, by ``output_mask``.

    The gradient of the bias does not depend on ``i``: if ``i`` is split, all ranks compute it.
    """
    factors = ConvolutionFactors.of(call, call["input"], call["weight"], call["grad_output"])
    return replace(backward_rule(call, factors), lower=partial(_local_backward, factors))


def backward_rule(call: OpCall, factors: ConvolutionFactors) -> Rule:
    """Return the rule of a convolution's gradients, without its lowering."""
    asked = zip((factors.image, factors.weight, (factors.dim("g", "o"),)), call.results, strict=True)
    return Rule(
        (factors.made, factors.image, factors.weight),
        tuple(dims if type_ is not None else () for dims, type_ in asked),
        factors.sizes,
        reduce=factors.kinds(("n", "o", *factors.cut)),
        replicate=factors.whole(),
        linear=(frozenset({0}),),
        traded=factors.traded,
    )
