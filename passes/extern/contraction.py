"""Matmuls with an epilogue, and the library calls that compute them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import torch

from shardc.dialects.aten.schema import UnknownOperator, overload

DTYPES = (torch.float32, torch.bfloat16)
"""Dtypes for which libraries other than ATen are considered."""

LIBRARIES = ("aten", "onednn")

LINEAR = "mkldnn._linear_pointwise"


@dataclass(frozen=True)
class Contraction:
    """The computation ``epilogue(left @ right + bias)`` of an m x k and a k x n matrix.

    ``left_by_row``: rows of left are contiguous in memory, else its columns; ``right_by_row`` likewise.
    ``bias`` has n elements. ``epilogue`` is the target of one ATen call on the result (``aten.add.Tensor``
    adds a second m x n matrix). ``approximate`` is the argument of a gelu.
    """

    m: int
    k: int
    n: int
    dtype: torch.dtype
    left_by_row: bool
    right_by_row: bool
    bias: bool = False
    epilogue: str = ""
    approximate: str = ""

    @property
    def flops(self) -> int:
        """Floating-point operations of the matmul."""
        return 2 * self.m * self.k * self.n

    def shrunk(self, flops: int) -> Contraction:
        """Return a smaller contraction of at most ``flops``, by repeatedly halving the largest dim."""
        found = self
        while found.flops > flops:
            name = max(("m", "n", "k"), key=lambda dim: getattr(found, dim))
            found = replace(found, **{name: (getattr(found, name) + 1) // 2})
        return found

    def __str__(self) -> str:
        left, right = ("row" if by_row else "column" for by_row in (self.left_by_row, self.right_by_row))
        parts = [f"{self.m}x{self.k} by {left}, {self.k}x{self.n} by {right}, {self.dtype}"]
        parts += ["bias"] * self.bias + [f"{self.epilogue} {self.approximate}".strip()] * bool(self.epilogue)
        return ", ".join(parts)


@dataclass(frozen=True)
class LibraryCall:
    """A library call.

    ``reads`` maps each tensor parameter to ``left``, ``right``, ``right_t`` (transposed), ``bias``, ``other``
    or ``result`` (of the previous call). ``arguments`` are the other arguments.
    """

    target: str
    reads: Mapping[str, str]
    arguments: Mapping[str, object] = field(default_factory=dict)


POST_OPS = {"aten.gelu": "gelu", "aten.silu": "swish", "aten.sigmoid": "sigmoid", "aten.tanh": "tanh"}
"""ATen's pointwise ops for which oneDNN agrees with eager on NaN and infinity.

Relu, hardtanh and hardsigmoid are missing, because oneDNN returns numbers for NaN. Hardswish is missing,
because oneDNN does not let large results overflow.
"""

ADD = "aten.add.Tensor"


def forms(contraction: Contraction) -> dict[str, list[LibraryCall]]:
    """Return the forms of a contraction that this PyTorch supports, by name, ATen's first.

    A form is a list of calls. ``onednn`` includes the epilogue; ``onednn, apart`` leaves it to ATen.
    """
    found = {"aten": _aten(contraction)}
    if has_onednn() and contraction.dtype in DTYPES and onednn_takes(contraction.dtype):
        found["onednn"] = _onednn(contraction)
        if contraction.epilogue:
            found["onednn, apart"] = [*_onednn(replace(contraction, epilogue="")), *_aten(contraction)[1:]]
    return found


@cache
def has_onednn() -> bool:
    """Return whether this PyTorch was built with oneDNN and with the operator that calls it."""
    try:
        return torch.backends.mkldnn.is_available() and overload(LINEAR) is not None
    except (UnknownOperator, AttributeError):
        return False


@cache
def onednn_takes(dtype: torch.dtype) -> bool:
    """Return whether oneDNN supports matmuls of this dtype on this CPU; bf16 needs AVX-512."""
    name = {
        torch.bfloat16: "mkldnn._is_mkldnn_bf16_supported",
        torch.float16: "mkldnn._is_mkldnn_fp16_supported",
    }
    return dtype not in name or bool(overload(name[dtype])())


def _aten(contraction: Contraction) -> list[LibraryCall]:
    product = LibraryCall("aten.mm", {"self": "left", "mat2": "right"})
    if contraction.bias:
        product = LibraryCall("aten.addmm", {"self": "bias", "mat1": "left", "mat2": "right"})
    if not contraction.epilogue:
        return [product]
    if contraction.epilogue == ADD:
        return [product, LibraryCall(ADD, {"self": "result", "other": "other"})]
    arguments = {"approximate": contraction.approximate} if contraction.approximate else {}
    return [product, LibraryCall(contraction.epilogue, {"self": "result"}, arguments)]


def _onednn(contraction: Contraction) -> list[LibraryCall]:
    bias = {"B": "bias"} if contraction.bias else {}
    if contraction.epilogue == ADD:
        reads = {"X": "left", "other": "other", "W": "right_t", **bias}
        return [LibraryCall(f"{LINEAR}.binary", reads, {"attr": "add"})]
    post_op = POST_OPS[contraction.epilogue] if contraction.epilogue else "none"
    arguments = {"attr": post_op, "scalars": (), "algorithm": contraction.approximate}
    return [LibraryCall(LINEAR, {"X": "left", "W": "right_t", **bias}, arguments)]
