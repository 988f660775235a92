"""What is known of a kernel once its Triton module is written, for ``aot`` and the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.cost.kernel import Estimate


@dataclass(frozen=True)
class Jit:
    """One ``@triton.jit`` function of a module.

    ``signature`` has every argument in order with its type as Triton writes it: ``*fp32``, ``i32``,
    ``constexpr``; ``constants`` are the values of the ``constexpr`` ones. ``aligned`` names arguments
    divisible by 16: pointers to tensors. ``sizes`` may be so or not, each way a binary of its own.
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
    """A kernel as a Python module: its ``text``, and the functions in it.

    The module's ``launch(*inputs, *outputs, *sizes)`` starts everything on the current stream, on contiguous
    tensors; ``outputs`` are allocated, and leave out results in an operand's memory. A flat kernel (of any
    number of elements) has ``launch_all(tensors)``, of a list of tuples, instead.

    ``kind``: the contract of the code: ``pointwise``, ``reduction``, ``matmul`` or ``attention``.
    ``estimate``: at the sizes first seen; None of a flat kernel.
    """

    name: str
    text: str
    functions: tuple[Jit, ...]
    flat: bool = False
    kind: str = "pointwise"
    estimate: Estimate | None = None
