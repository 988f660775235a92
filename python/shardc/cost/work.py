"""The arithmetic and the traffic of ATen calls, and what starting one is worth in either."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Annotated

from shardc.cost.origin import Assumed
from shardc.dialects.aten.call import OpCall

_CPU = Assumed("a core does some 50 to 100 GFLOP/s in f32")

LAUNCH_BYTES: Annotated[int, Assumed("about 5 us at 13 GB/s, of a core")] = 1 << 16
"""What starting one op costs, in bytes of memory traffic."""
MAPPED_BYTES: Annotated[int, Assumed("glibc's largest threshold")] = 32 << 20
"""Results of ATen of so much lie in memory that the operating system maps anew at each call."""
COPIED_BYTES: Annotated[int, Assumed("a copy of more takes longer than a program's launches")] = 64 << 20
"""What may be copied into a CUDA graph's memory at each call."""
SMALL_FLOPS: Annotated[int, _CPU] = 1 << 22
"""Matmuls of fewer floating-point operations (some 40 us in f32) are not worth a decision of their own."""
LARGE_FLOPS: Annotated[int, _CPU] = 1 << 33
"""Of those of more (some 160 ms) trying both ways would take too long."""
MEASURED_FLOPS: Annotated[int, _CPU] = 1 << 32
"""Contractions of more (some 40 ms in f32) are measured on smaller ones."""
FLOPS_PER_BYTE: Annotated[float, Assumed("a stage's part of an H100's 295 (989 TFLOP/s, 3.35 TB/s)")] = 50.0
"""How many floating-point operations a device does while it moves a byte of memory."""
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
    "math.powf": 80,
    "arith.divf": 4,
    "math.sqrt": 5,
    "math.rsqrt": 6,
}
"""Of elements on a CPU, what an op takes; 1 what is not here."""
FUNCTION_INSTRUCTIONS: Annotated[int, Assumed("a division, or a function of ``math``")] = 8
"""What a GPU's units are busy with for an element; 1 for any other op."""
LOGIT_INSTRUCTIONS: Annotated[int, Assumed("an exponential and its sum")] = 10
"""The same for a logit of a cross entropy, besides its product."""


MATMULS = frozenset(f"aten.{name}" for name in ("mm", "bmm", "addmm", "baddbmm", "matmul"))
"""Products of matrices; the last two tensors of a call are multiplied."""


def work_bytes(call: OpCall) -> float:
    """The time of a call in bytes of memory moved: good enough to compare parts of one program."""
    return moved_bytes(call) + flops(call) / FLOPS_PER_BYTE


def moved_bytes(call: OpCall) -> int:
    """Of the tensors that a call reads and writes, each once; of an embedding's table it reads some rows."""
    read = call.tensors[1:] if call.target == "aten.embedding" else call.tensors
    return sum(t.size_bytes for t in (*read, *call.results) if t is not None)


def flops(call: OpCall) -> float:
    """Floating-point operations of the products in a call; 0 where it has none."""
    if call.target in MATMULS:
        return 2.0 * prod(matmul_sizes(call.tensors[-2].shape, call.tensors[-1].shape))
    if call.target in ("aten.convolution", "aten.convolution_backward"):
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


def _expert_flops(call: OpCall) -> float:
    """Of the rows that experts are expected to have: each the same part of those that come to its block."""
    rows, terms = call["x"].shape
    is_gradient = call.target == "shardc.expert_outer"
    experts = call["experts"] if is_gradient else call["w"].shape[0]
    columns = (call["y"] if is_gradient else call["w"]).shape[-1]
    return 2.0 * terms * columns * (rows // call["ways"]) * experts * call["share"]


def _convolution_flops(call: OpCall) -> float:
    """A weight's element meets each element of what the convolution makes; transposed, of what it reads.

    The backward has one such product for the input's gradient and one for the weight's.
    """
    backward = call.target.endswith("_backward")
    made = call["grad_output"] if backward else call.result
    met = call["input"] if call["transposed"] else made
    products = sum(call["output_mask"][:2]) if backward else 1
    return 2.0 * products * met.numel * prod(call["weight"].shape[1:])


def _causal_flops(call: OpCall) -> float:
    """As of a convolution that makes no more than it reads."""
    backward = call.target.endswith("_backward")
    made = call["grad_output"] if backward else call.result
    products = sum(call["output_mask"][:2]) if backward else 1
    return 2.0 * products * made.numel * prod(call["weight"].shape[1:])


def matmul_sizes(left: Sequence[int], right: Sequence[int]) -> tuple[int, int, int, int]:
    """Batch, rows, columns and terms of a product of tensors of such shapes; a vector is a row or column."""
    if len(right) == 1:
        return 1, prod(left[:-1]), 1, left[-1]
    if len(left) == 1:
        return prod(right[:-2]), 1, right[-1], left[-1]
    batch = left[:-2] if len(left) >= len(right) else right[:-2]
    return prod(batch), left[-2], right[-1], left[-1]


def attention_flops(query_elements: int, keys: int, backward: bool = False) -> int:
    """Of the products of an attention: two forward, five backward, each over all keys."""
    return (10 if backward else 4) * query_elements * keys
