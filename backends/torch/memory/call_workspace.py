"""Temporary memory within calls on a CPU, besides their results.

Experts' matmuls copy the rows of one expert at a time (``runtime/operators/experts.py``). oneDNN convolves in
blocked layouts, with copies of operands and results. Figures were measured with PyTorch's allocator on an
AVX-512 CPU (torch 2.13; ``test/bench/peak_cpu.py``), for plain layouts and many channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

_CONVOLUTIONS = {
    "aten.convolution.default": 2,
    "aten.convolution_backward.default": 2,
    "shardc.convolution_direct.default": 2,
    "shardc.convolution_last.default": 2,
    "shardc.convolution_last_backward.default": 2,
}
"""Number of first operands that are copied at the same time, while the results exist: input and weight; in
the backward, the gradient and the input.
"""


_PRODUCTS = ("shardc.expert_mm.default", "shardc.expert_outer.default")
_SORTED = 2
"""Integers for each row: the sorted experts, and their rows."""


def _expert_bytes(name: str, args: Sequence[Any]) -> int:
    """Return the temporary bytes of an experts' matmul, if all experts have equally many rows."""
    x, other, ids, *_, ways, share = args
    rows = int(len(x) // ways * share)
    return _SORTED * ids.nbytes + rows * (x.shape[1] + other.shape[-1]) * x.itemsize


def call_workspace_bytes(name: str, args: Sequence[Any], made: object) -> int:
    """Return the temporary bytes of the operator ``name``, besides its results."""
    if name in _PRODUCTS:
        return _expert_bytes(name, args)
    count = _CONVOLUTIONS.get(name)
    if count is None:
        return 0
    copied = sum(arg.nbytes for arg in args[:count])
    return max(copied, made.nbytes) if isinstance(made, Tensor) else copied
