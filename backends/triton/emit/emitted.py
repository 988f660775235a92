"""Facts about a kernel whose Triton module was written, for ``aot`` and the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.cost.kernel import Estimate


@dataclass(frozen=True)
class Jit:
    """``@triton.jit`` function of a module.

    ``signature``: arguments in order -> their types in Triton: ``*fp32``, ``i32``, ``constexpr``.
    ``constants``: values of the ``constexpr`` arguments. ``aligned``: arguments divisible by 16, which are
    pointers to tensors. ``sizes``: arguments that may or may not be divisible by 16, with a binary for each
    case.
    """

    name: str
    signature: Mapping[str, str]
    constants: Mapping[str, int | bool]
    aligned: tuple[str, ...]
    num_warps: int
    num_stages: int
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Emitted:
    """Kernel as a Python module: its ``text``, and the functions in it.

    The module's ``launch(*inputs, *outputs, *sizes)`` starts everything on the current stream, on contiguous
    tensors. The caller allocates ``outputs``, without results in an operand's memory. A flat kernel (for any
    number of elements) has ``launch_all(tensors)`` for a list of tuples instead.

    ``kind``: ``pointwise``, ``reduction``, ``matmul`` or ``attention``. ``estimate``: estimate at the sizes
    first seen; None for a flat kernel.
    """

    name: str
    text: str
    functions: tuple[Jit, ...]
    flat: bool = False
    kind: str = "pointwise"
    estimate: Estimate | None = None
