"""What calls take inside of them on a CPU, beside their results, and give back before they end.

Experts' products have the rows of one expert at a time (``runtime/operators/experts.py``). oneDNN convolves
in blocked layouts: operands are copied into one, and a result out of it. Measured by PyTorch's allocator on
an AVX-512 CPU (torch 2.13; ``test/bench/peak_cpu.py``), for plain layouts and many channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

_CONVOLUTIONS = {"aten.convolution.default": 2, "aten.convolution_backward.default": 2}
"""How many operands, the first ones, are copied at once while the results are there: input and weight; of the
backward the gradient and the input.
"""


_PRODUCTS = ("shardc.expert_mm.default", "shardc.expert_outer.default")
_SORTED = 2
"""Integers for each row: experts in order, and the rows that they are of."""


def _expert_bytes(name: str, args: Sequence[Any]) -> int:
    """If experts have equally many rows: those of one, and what they are multiplied to or with."""
    x, other, ids, *_, ways, share = args
    rows = int(len(x) // ways * share)
    return _SORTED * ids.nbytes + rows * (x.shape[1] + other.shape[-1]) * x.itemsize


def call_workspace_bytes(name: str, args: Sequence[Any], made: object) -> int:
    """Bytes of the operator ``name`` over its results."""
    if name in _PRODUCTS:
        return _expert_bytes(name, args)
    count = _CONVOLUTIONS.get(name)
    if count is None:
        return 0
    copied = sum(arg.nbytes for arg in args[:count])
    return max(copied, made.nbytes) if isinstance(made, Tensor) else copied
