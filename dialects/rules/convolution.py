"""Rules of convolutions and their backward, transposed ones and grouped ones included.

Input channels are ``(g i)`` and output channels ``(g o)``: g groups, each of i input and o output channels.
Pixels stay whole (neighbouring blocks would need a halo), but for convolutions whose windows neither overlap
nor leave gaps (patch embeddings, 1x1 convolutions): there an input dim is ``(y z)``, y windows of z pixels,
and y may be cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.rules.matmul import on_first
from shardc.dialects.rules.rule import Dim, Dims, Local, Rule, emit_with, rule_for

LINEAR_WITHOUT_BIAS = (frozenset({0}), frozenset({1}))
LINEAR_WITH_BIAS = (frozenset({0, 2}), frozenset({1, 2}))


@dataclass
class _Factors:
    """The factors of one convolution of ``image`` [N, C, pixels...] to ``made`` [N, C', pixels...]."""

    sizes: dict[str, int]
    patches: tuple[bool, ...]

    @staticmethod
    def of(call: OpCall, image: TensorType, weight: TensorType, made: TensorType) -> _Factors:
        groups, transposed = call["groups"], call["transposed"]
        o = made.shape[1] // groups
        sizes = {"n": image.shape[0], "g": groups, "o": o, "i": image.shape[1] // groups}
        patches = []
        for d, (x, z, y) in enumerate(zip(image.shape[2:], weight.shape[2:], made.shape[2:], strict=True)):
            step, margin, hole = (_at(call[a], d) for a in ("stride", "padding", "dilation"))
            dense = (step, margin) == (z, 0) and (hole == 1 or z == 1) and x == y * z
            patches.append(dense and not transposed)
            sizes |= {f"y{d}": y, f"z{d}": z} | ({} if patches[-1] else {f"x{d}": x})
        return _Factors({f: n for f, n in sizes.items() if n > 1}, tuple(patches))

    def dim(self, *factors: str) -> Dim:
        return tuple(f for f in factors if f in self.sizes)

    def kinds(self, factors: Sequence[str]) -> dict[str, str]:
        return {f: "sum" for f in factors if f in self.sizes}

    @property
    def image(self) -> Dims:
        pixels = (self.dim(f"y{d}", f"z{d}") if p else self.dim(f"x{d}") for d, p in enumerate(self.patches))
        return (self.dim("n"), self.dim("g", "i"), *pixels)

    @property
    def made(self) -> Dims:
        return (self.dim("n"), self.dim("g", "o"), *(self.dim(f"y{d}") for d in range(len(self.patches))))

    def weight(self, transposed: bool) -> Dims:
        channels = (self.dim("g", "i"), self.dim("o")) if transposed else (self.dim("g", "o"), self.dim("i"))
        return (*channels, *(self.dim(f"z{d}") for d in range(len(self.patches))))

    @property
    def windows(self) -> tuple[str, ...]:
        """The output pixels that may be cut."""
        return tuple(f"y{d}" for d, patch in enumerate(self.patches) if patch)

    def whole(self) -> frozenset[str]:
        """Pixels that must not be cut."""
        return frozenset({f for f in self.sizes if f[0] in "xyz"} - set(self.windows))


def _at(values: Sequence[int], d: int) -> int:
    """A setting of spatial dim ``d``; a single value stands for all dims."""
    return values[d] if len(values) > 1 else values[0]


def _local_convolution(local: Local) -> Sequence[object]:
    """The call with this rank's groups; of ranks that share input channels the first add the bias."""
    changed: dict[str, object] = {"groups": local.size("g")} if local.spec["groups"] > 1 else {}
    if local.spec["bias"] is not None and local.ways("i") > 1:
        changed["bias"] = on_first(local, "i", local.args[2])
    return [emit_with(local, **changed)]


@rule_for("aten.convolution")
def convolution(call: OpCall) -> Rule:
    """``(input, weight, bias) -> output``, a sum over input channels."""
    image, weight, bias = call["input"], call["weight"], call["bias"]
    factors = _Factors.of(call, image, weight, call.result)
    operands = (factors.image, factors.weight(call["transposed"]))
    return Rule(
        operands if bias is None else (*operands, (factors.dim("g", "o"),)),
        (factors.made,),
        factors.sizes,
        reduce=factors.kinds("i"),
        replicate=factors.whole(),
        linear=LINEAR_WITHOUT_BIAS if bias is None else LINEAR_WITH_BIAS,
        lower=_local_convolution if "g" in factors.sizes or bias is not None else None,
    )


def _smaller_backward(local: Local) -> Sequence[object]:
    """The local gradient's arguments: how many output channels and groups this rank has."""
    changed: dict[str, object] = {"groups": local.size("g")} if local.spec["groups"] > 1 else {}
    if local.results[2] is not None:
        changed["bias_sizes"] = local.results[2].shape
    return emit_with(local, **changed)


@rule_for("aten.convolution_backward")
def convolution_backward(call: OpCall) -> Rule:
    """``(grad_output, input, weight) -> (grad_input, grad_weight, grad_bias)``, each as ``output_mask`` asks.

    The gradient of the bias does not depend on ``i``: ranks that share ``i`` out all make it.
    """
    image, weight = call["input"], call["weight"]
    factors = _Factors.of(call, image, weight, call["grad_output"])
    kernel, channels = factors.weight(call["transposed"]), (factors.dim("g", "o"),)
    asked = zip((factors.image, kernel, channels), call.results, strict=True)
    return Rule(
        (factors.made, factors.image, kernel),
        tuple(dims if type_ is not None else () for dims, type_ in asked),
        factors.sizes,
        reduce=factors.kinds(("n", "o", *factors.windows)),
        replicate=factors.whole(),
        linear=(frozenset({0}),),
        lower=_smaller_backward,
    )
