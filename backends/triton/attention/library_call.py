"""PyTorch's implementations for a call of ``shardc.attention`` or its backward in a program."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_mlir import ir

from shardc.dialects.aten.call import CallReader
from shardc.dialects.aten.types import TensorType
from shardc.runtime.operators.attention import LIBRARIES, Problem, library_for


def default_library(op: ir.Operation) -> str | None:
    """Return the library that computes it on an NVIDIA GPU without an overload; None means plain ops."""
    return library_for(_problem(op))


def other_libraries(op: ir.Operation) -> Sequence[str]:
    """Return the overloads that use another library."""
    problem = _problem(op)
    default = library_for(problem)
    return [name for name in LIBRARIES if library_for(problem._replace(library=name)) == name != default]


def _problem(op: ir.Operation) -> Problem:
    """Return the call's operands on the meta device. An offset known only at run time counts as 0."""
    spec = CallReader().read(op).spec
    q, k, v = (_empty(spec[name]) for name in "qkv")
    mask, offset = spec["mask"], spec["q_offset"]
    place = offset if isinstance(offset, int) else 0
    return Problem(q, k, v, None if mask is None else _empty(mask), spec["causal"], spec["scale"], place)


def _empty(type_: TensorType) -> torch.Tensor:
    return torch.empty(type_.shape, dtype=type_.dtype, device="meta")
