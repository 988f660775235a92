"""What is known of a kernel once its Triton module is written. The other files of this folder make it;
``compile``, ``interpret`` and the runtime read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.cost.kernel import Estimate


@dataclass(frozen=True)
class Jit:
    """One ``@triton.jit`` function of a module.

    ``signature`` has every argument in order with its type as Triton writes it: ``*fp32``, ``i32``,
    ``constexpr``; ``constants`` are the values of the ``constexpr`` ones. ``aligned`` names arguments that
    are divisible by 16: pointers to whole tensors. ``sizes`` are those that may be so or not, each way a
    binary of its own, as Triton's launch tells them apart.
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

    The module has ``launch(*inputs, *outputs, *sizes)``, which starts everything on the current stream:
    contiguous tensors, those in ``outputs`` already allocated (results in an operand's memory are not among
    them), and the integers of symbolic sizes. ``inputs``, ``outputs`` and ``sizes`` are the names of its
    parameters. A flat kernel (of any number of elements) has ``launch_all(tensors)`` instead, of a list of
    tuples of inputs and outputs, and launches once for all.

    ``kind`` says which contract the code is held to: ``pointwise``, ``reduction``, ``matmul`` or
    ``attention``. ``estimate``: at the sizes first seen; None of a flat kernel, whose sizes are those of each
    call.
    """

    name: str
    text: str
    functions: tuple[Jit, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sizes: tuple[str, ...] = ()
    flat: bool = False
    kind: str = "pointwise"
    estimate: Estimate | None = None
