"""What is known of a kernel once its Triton module is written. The other files of this folder make it; ``compile``,
``interpret`` and the runtime read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Jit:
    """One ``@triton.jit`` function of a module.

    ``signature`` has every argument in order with its type as Triton writes it: ``*fp32``, ``i32``, ``constexpr``;
    ``constants`` are the values of the ``constexpr`` ones. ``aligned`` names arguments that are divisible by 16:
    pointers to whole tensors. ``sizes`` are those that may be so or not, each way a binary of its own, as Triton's
    launch tells them apart.
    """

    name: str
    signature: Mapping[str, str]
    constants: Mapping[str, int | bool]
    aligned: tuple[str, ...]
    num_warps: int
    num_stages: int
    sizes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """What the models of costs say that one launch of a kernel takes, without a trial.

    ``seconds``: all of its functions, one after the other. ``flops``: of its matrix products, which matrix units do at
    ``flop_s``; ``moved_bytes``: of the tensors that it reads or writes, each once; ``bytes_s``: the memory's rate.
    ``spill_bytes``: of a thread, what of its registers is taken to be stored and loaded again.
    """

    seconds: float
    flops: int
    flop_s: float
    moved_bytes: int
    bytes_s: float
    spill_bytes: int = 0

    @property
    def roofline_s(self) -> float:
        """What the target's rates alone would allow."""
        return max(self.flops / self.flop_s, self.moved_bytes / self.bytes_s)

    @property
    def bound(self) -> str:
        """What the roofline is that of."""
        return "arithmetic" if self.flops / self.flop_s > self.moved_bytes / self.bytes_s else "memory"


@dataclass(frozen=True)
class Emitted:
    """A kernel as a Python module: its ``text``, and the functions in it.

    The module has ``launch(*inputs, *outputs, *sizes)``, which starts everything on the current stream: contiguous
    tensors, those in ``outputs`` already allocated (results in an operand's memory are not among them), and the
    integers of symbolic sizes. ``inputs``, ``outputs`` and ``sizes`` are the names of its parameters. A flat kernel (of
    any number of elements) has
    ``launch_all(tensors)`` instead, of a list of tuples of inputs and outputs, and launches once for all.

    ``kind`` says which contract the code is held to: ``pointwise``, ``reduction``, ``matmul`` or ``attention``.
    ``estimate``: at the sizes first seen; None of a flat kernel, whose sizes are those of each call.
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
