"""Arithmetic and memory traffic of ATen calls, and the equivalent cost of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Annotated

from shardc.cost.origin import Assumed
from shardc.dialects.aten.call import OpCall

_CPU = Assumed("a core does some 50 to 100 GFLOP/s in f32")

LAUNCH_BYTES: Annotated[int, Assumed("about 5 us at 13 GB/s, of a core")] = 1 << 16
"""Cost of launching an op, in bytes of memory traffic."""
MAPPED_BYTES: Annotated[int, Assumed("glibc's largest threshold")] = 32 << 20
"""Results of ATen of this size lie in memory that the operating system maps anew at each call."""
TRIMMED_BYTES: Annotated[int, Assumed("a call of ATen that maps so much costs 1 ms")] = 4 << 20
"""Results of ATen of this size may lie in memory that is returned after each call, if little else is kept."""
COPIED_BYTES: Annotated[int, Assumed("a copy of more takes longer than a program's launches")] = 64 << 20
"""Maximum size of inputs copied into a CUDA graph's memory at each call."""
PREPARED_BYTES: Annotated[int, Assumed("a thread's part of a server's memory")] = 1 << 26
"""Most bytes of a prepared image of a convolution, which each thread has."""
COLD_BYTES: Annotated[int, Assumed("more than a core's part of a shared cache")] = 1 << 26
"""Bytes of a measured product's factors that take turns, so that a cache serves them no better than in a
step.
"""
SMALL_FLOPS: Annotated[int, _CPU] = 1 << 22
"""Matmuls with fewer floating-point operations (about 40 us in f32) get no separate decision."""
LARGE_FLOPS: Annotated[int, _CPU] = 1 << 33
"""For matmuls with more (about 160 ms), trying both ways would take too long."""
MEASURED_FLOPS: Annotated[int, _CPU] = 1 << 32
"""Contractions with more (about 40 ms in f32) are measured on smaller ones."""
FLOPS_PER_BYTE: Annotated[float, Assumed("a stage's part of an H100's 295 (989 TFLOP/s, 3.35 TB/s)")] = 50.0
"""Floating-point operations of a device in the time of moving a byte of memory."""
MEASURED_CONVOLUTION: Annotated[int, _CPU] = 1 << 29
"""Convolutions with more (about 5 ms) are measured with a smaller batch, in five forms."""
ADDITIONS: Annotated[dict[str, int], Assumed("instructions of the polynomials that compute them")] = {
    "math.exp": 12,
    "math.exp2": 12,
    "math.expm1": 16,
    "math.log": 14,
    "math.log1p": 16,
    "math.erf": 16,
    "math.tanh": 16,
    "math.sin": 40,
    "math.cos": 40,
    "math.tan": 40,
    **dict.fromkeys(("math.acos", "math.asin", "math.atan", "math.log10", "math.sinh", "math.cosh"), 20),
    **dict.fromkeys(("math.atan2", "math.asinh", "math.acosh", "math.atanh"), 30),
    "math.powf": 80,
    "arith.divf": 4,
    "arith.remf": 60,
    "math.sqrt": 5,
    "math.rsqrt": 6,
}
"""Additions that an op on an element costs on a CPU; ops that are not listed cost 1."""
FUNCTION_INSTRUCTIONS: Annotated[int, Assumed("a division, or a function of ``math``")] = 8
"""Instructions of a GPU for an element of such a function; other ops take 1."""
LOGIT_INSTRUCTIONS: Annotated[int, Assumed("an exponential and its sum")] = 10
"""The same for a logit of a cross entropy, besides its product."""


PARTS = frozenset(["aten.slice.Tensor", "aten.select.int"])
"""Calls that take a part of a tensor."""
MATMULS = frozenset(f"aten.{name}" for name in ("mm", "bmm", "addmm", "baddbmm", "matmul"))
"""Matmuls; a call's last two tensors are multiplied."""


def work_bytes(call: OpCall) -> float:
    """Return the time of a call as bytes of memory traffic, to compare parts of one program."""
    return moved_bytes(call) + computed_flops(call) / FLOPS_PER_BYTE


def moved_bytes(call: OpCall) -> int:
    """Return the bytes of tensors that a call reads and writes.

    Of an embedding's table nothing counts, of a tensor that is sliced the part that is taken.
    """
    read = call.tensors[1:] if call.target == "aten.embedding" else call.tensors
    if call.target in PARTS:
        read = tuple(made for made in call.results if made is not None)
    return sum(t.size_bytes for t in (*read, *call.results) if t is not None)


def flops(call: OpCall) -> float:
    """Return the floating-point operations of the products in a call; 0 if it has none."""
    if call.target in MATMULS:
        return 2.0 * prod(matmul_sizes(call.tensors[-2].shape, call.tensors[-1].shape))
    if call.target in ("aten.convolution", "aten.convolution_backward", "shardc.convolution_direct"):
        return _convolution_flops(call)
    if call.target.startswith(("shardc.attention", "shardc.folded_attention", "shardc.ring_attention")):
        keys = call["k"].shape[-2]
        return float(attention_flops(call["q"].numel, keys, call.target.endswith("_backward")))
    if call.target.startswith(("shardc.causal_convolution", "shardc.padded_convolution")):
        return _causal_flops(call)
    if call.target in ("shardc.expert_mm", "shardc.expert_outer"):
        return _expert_flops(call)
    if call.target == "aten._grouped_mm":
        left, right = call["self"].shape, call["mat2"].shape
        is_cut = len(left) == len(right) == 2  # along the terms: each is of one group
        return 2.0 * left[-1] * (left[0] * right[1] if is_cut else call.result.numel)
    return 0.0


def computed_flops(call: OpCall, offset: float | None = None) -> float:
    """Return the FLOP of a call's products that kernels compute: those of scores that a mask hides are not.

    ``offset``: as for :func:`seen_part`.
    """
    return flops(call) * seen_part(call, offset)


def seen_part(call: OpCall, offset: float | None = None) -> float:
    """Return the share of an attention's scores that its causal mask leaves; 1 without one, and for others.

    ``offset``: where the queries start among the keys, if it is a value that the program computes; a device's
    queries may be anywhere, so it is the mean over devices. Without it such queries see all keys.
    """
    if call.target.startswith("shardc.attention"):
        given = call["q_offset"]
        start = float(given) if isinstance(given, int) else offset
        is_causal = call["causal"] and call["mask"] is None and start is not None
    else:
        is_causal = (
            call.target.startswith(("shardc.folded_attention", "shardc.ring_attention")) and call["ways"]
        )
        start = 0.0
    if not is_causal or start is None:
        return 1.0
    queries, keys = call["q"].shape[-2], call["k"].shape[-2]
    first = start + 1
    rising = min(max(keys - first + 1, 0), queries)  # queries that each see a key more than the last
    seen = rising * (first + (rising - 1) / 2) + (queries - rising) * keys
    return min(1.0, seen / (queries * keys))


def _expert_flops(call: OpCall) -> float:
    """Return the FLOP for the rows that experts are expected to get: equal shares of all rows."""
    rows, terms = call["x"].shape
    is_gradient = call.target == "shardc.expert_outer"
    experts = call["experts"] if is_gradient else call["w"].shape[0]
    columns = (call["y"] if is_gradient else call["w"]).shape[-1]
    return 2.0 * terms * columns * (rows // call["ways"]) * experts * call["share"]


def _convolution_flops(call: OpCall) -> float:
    """Return the FLOP of a convolution: each weight element meets each result element.

    Elements of a transposed convolution's weight meet those of the input.

    The backward has one such product for the input's gradient and one for the weight's.
    """
    backward = call.target.endswith("_backward")
    made = call["grad_output"] if backward else call.result
    met = call["input"] if call["transposed"] else made
    products = sum(call["output_mask"][:2]) if backward else 1
    return 2.0 * products * met.numel * prod(call["weight"].shape[1:])


def _causal_flops(call: OpCall) -> float:
    """Return the FLOP of a convolution whose result is no larger than its input."""
    backward = call.target.endswith("_backward")
    made = call["grad_output"] if backward else call.result
    products = sum(call["output_mask"][:2]) if backward else 1
    return 2.0 * products * made.numel * prod(call["weight"].shape[1:])


def matmul_sizes(left: Sequence[int], right: Sequence[int]) -> tuple[int, int, int, int]:
    """Return batch, rows, columns and terms of a product of these shapes; a vector is a row or column."""
    if len(right) == 1:
        return 1, prod(left[:-1]), 1, left[-1]
    if len(left) == 1:
        return prod(right[:-2]), 1, right[-1], left[-1]
    batch = left[:-2] if len(left) >= len(right) else right[:-2]
    return prod(batch), left[-2], right[-1], left[-1]


def attention_flops(query_elements: int, keys: int, backward: bool = False) -> int:
    """Return the FLOP of an attention's products: two forward, five backward, each over all keys."""
    return (10 if backward else 4) * query_elements * keys
