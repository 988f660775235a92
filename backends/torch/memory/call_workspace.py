"""What calls of ATen take inside of them on a CPU, beside their results, and give back before they end.

oneDNN convolves in blocked layouts: operands are copied into one, and a result out of it. Measured by
PyTorch's allocator on an AVX-512 CPU (torch 2.13; ``test/bench/peak_cpu.py``), for plain layouts and many
channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

_CONVOLUTIONS = {"aten.convolution.default": 2, "aten.convolution_backward.default": 2}
"""How many operands, the first ones, are copied at once while the results are there: input and weight; of the
backward the gradient and the input.
"""


def call_workspace_bytes(name: str, args: Sequence[Any], made: object) -> int:
    """Bytes of the operator ``name`` over its results."""
    count = _CONVOLUTIONS.get(name)
    if count is None:
        return 0
    copied = sum(arg.nbytes for arg in args[:count])
    return max(copied, made.nbytes) if isinstance(made, Tensor) else copied
