"""Rules of causal convolutions: a sequence may be split, and a rank receives the end of the previous block.

A window of K elements, ``dilation`` apart, reaches ``dilation * (K - 1)`` elements back. That many elements
of the previous rank are a rank's halo; backward returns their gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shardc.dialects.aten.call import OpCall
from shardc.dialects.rules.matmul import on_first
from shardc.dialects.rules.rule import Dim, Dims, Local, Rule, rule_for
from shardc.dialects.rules.spatial.convolution import LINEAR_WITH_BIAS, LINEAR_WITHOUT_BIAS
from shardc.dialects.rules.spatial.neighbours import Halo, part

SEQUENCE = 2
"""The dim of the sequence, after batch and channels."""


def _rule(call: OpCall, operands: str, results: str) -> Rule:
    """Return a rule; each letter names a tensor's dims: x, y, w or b, and a dash for no tensor."""
    o, i, z = call["weight"].shape
    groups = call["groups"]
    given = {"n": call["input"].shape[0], "g": groups, "o": o // groups, "i": i, "z": z}
    sizes = {f: n for f, n in (given | {"s": call["input"].shape[SEQUENCE]}).items() if n > 1}

    def dim(*factors: str) -> Dim:
        return tuple(f for f in factors if f in sizes)

    tensors: dict[str, Dims] = {
        "x": (dim("n"), dim("g", "i"), dim("s")),
        "y": (dim("n"), dim("g", "o"), dim("s")),
        "w": (dim("g", "o"), dim("i"), dim("z")),
        "b": (dim("g", "o"),),
        "-": (),
    }
    return Rule(
        tuple(tensors[letter] for letter in operands),
        tuple(tensors[letter] for letter in results),
        sizes,
        replicate=frozenset(dim("z")),
        traded=frozenset(dim("s")),
        trades_in_loops=True,
    )


def _reach(local: Local) -> int:
    return local.spec["dilation"] * (local.spec["weight"].shape[2] - 1)


def _halo(local: Local) -> Halo | None:
    """Return the halo from the previous rank, or None if the sequence is whole."""
    if local.spec["input"].shape[SEQUENCE] == 1 or local.ways("s") == 1:
        return None
    return Halo("s", SEQUENCE, local.size("s"), _reach(local), 0)


def _groups(local: Local) -> int:
    return local.size("g") if local.spec["groups"] > 1 else 1


def _local(local: Local) -> Sequence[Any]:
    """Convolve the block after its halo. If input channels are split, only the first ranks add the bias."""
    x, weight, bias, dilation, _ = local.args
    if bias is not None and local.spec["weight"].shape[1] > 1 and local.ways("i") > 1:
        bias = on_first(local, "i", bias)
    halo = _halo(local)
    x, margin = (x, _reach(local)) if halo is None else (halo.extended(local, x), 0)
    settings = ((1,), (margin,), (dilation,), False, (0,), _groups(local))
    made = local.emit("aten.convolution", x, weight, bias, *settings)
    return [made if halo is not None else part(local, made, SEQUENCE, 0, local.spec["input"].shape[SEQUENCE])]


def _local_backward(local: Local) -> Sequence[Any]:
    """Compute gradients, and return a halo's gradient to its owner."""
    grad, x, weight, dilation, _, mask = local.args
    halo, margin = _halo(local), 0
    if halo is None:
        margin = _reach(local)
        grad = local.emit("aten.constant_pad_nd", grad, (0, margin), 0.0)
    else:
        x = halo.extended(local, x)
    made = local.results[2]
    sizes = made.shape if made is not None else (0,)
    settings = ((1,), (margin,), (dilation,), False, (0,), _groups(local), mask)
    first, *others = local.emit("aten.convolution_backward", grad, x, weight, sizes, *settings)
    return [halo.returned(local, first) if halo is not None and mask[0] else first, *others]


@rule_for("shardc.causal_convolution")
def causal_convolution(call: OpCall) -> Rule:
    """Rule of ``(input [n, c, s], weight, bias) -> [n, c', s]``, a sum over input channels.

    Padding of the sequence is at its end, so only windows of padding read it.
    """
    bias = call["bias"] is not None
    rule = _rule(call, "xwb" if bias else "xw", "y")
    return replace(
        rule,
        reduce={"i": "sum"} if "i" in rule.sizes else {},
        linear=LINEAR_WITH_BIAS if bias else LINEAR_WITHOUT_BIAS,
        lower=_local,
    )


@rule_for("shardc.causal_convolution_backward")
def causal_convolution_backward(call: OpCall) -> Rule:
    """Rule of ``(grad_output, input, weight) -> (grad_input, grad_weight, grad_bias)``, by
    ``output_mask``.
    """
    made = "".join(letter if asked else "-" for letter, asked in zip("xwb", call["output_mask"], strict=True))
    rule = _rule(call, "yxw", made)
    return replace(
        rule,
        reduce={f: "sum" for f in ("n", "o", "s") if f in rule.sizes},
        linear=(frozenset({0}),),
        lower=_local_backward,
    )
