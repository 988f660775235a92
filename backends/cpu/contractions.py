"""Benchmark candidates for contractions: the library calls of each form, on generated tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch

from shardc.backends.benchmark.benchmark import Candidate, choose
from shardc.backends.torch.functions import WITH_OUT
from shardc.cost.work import MEASURED_FLOPS, SMALL_FLOPS
from shardc.dialects.aten.schema import overload
from shardc.passes.extern.contraction import Contraction, LibraryCall, forms
from shardc.runtime.kernels.pool import POOLED_BYTES, contiguous
from shardc.runtime.torch_private import schema_of


def measured_form(contraction: Contraction) -> str:
    """Return the name of the contraction's fastest form on this machine.

    Small contractions use ATen, since a library's call takes longer. Large ones are measured at a smaller
    size.
    """
    if contraction.flops < SMALL_FLOPS:
        return "aten"
    small = contraction.shrunk(MEASURED_FLOPS)
    return choose(str(small), candidates(small))


def candidates(contraction: Contraction) -> list[Candidate]:
    """Return a candidate for each form, ATen's first."""
    known = forms(contraction).items()
    return [Candidate(name, partial(_build, contraction, calls)) for name, calls in known]


def _build(contraction: Contraction, calls: Sequence[LibraryCall]) -> Callable[[], torch.Tensor]:
    tensors = made_inputs(contraction)

    def run() -> torch.Tensor:
        for call in calls:
            tensors["result"] = _call(call, tensors, (contraction.m, contraction.n), contraction.dtype)
        return tensors["result"]

    return run


def _call(
    call: LibraryCall, tensors: dict[str, torch.Tensor], shape: tuple[int, int], dtype: torch.dtype
) -> torch.Tensor:
    """Run a call as programs do: large ATen matmuls are written to memory of the pool."""
    arguments = {**{name: tensors[slot] for name, slot in call.reads.items()}, **call.arguments}
    if call.target in WITH_OUT and shape[0] * shape[1] * dtype.itemsize >= POOLED_BYTES:
        return overload(f"{call.target}.out")(**arguments, out=contiguous(shape, dtype))
    return overload(call.target)(**{**_absent(call.target), **arguments})


@cache
def _absent(target: str) -> dict[str, None]:
    """Return None for each parameter without a default, because a library's operators require all."""
    return {p.name: None for p in schema_of(overload(target)).arguments if not p.has_default_value()}


def made_inputs(contraction: Contraction) -> dict[str, torch.Tensor]:
    """Return tensors with a contraction's shapes, layouts and dtype, by the names of :class:`LibraryCall`."""
    c = contraction
    full = partial(torch.full, fill_value=0.5, dtype=c.dtype, device="cpu")
    left = full((c.m, c.k)) if c.left_by_row else full((c.k, c.m)).t()
    right = full((c.k, c.n)) if c.right_by_row else full((c.n, c.k)).t()
    factors = {"left": left, "right": right, "right_t": right.t()}
    return {**factors, "bias": full((c.n,)), "other": full((c.m, c.n))}
