"""Gradients of 16-bit floats summed in f32: twice the bytes, in as many collectives, equal to one device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch_mlir import ir

import shardc
from shardc.diagnostics.api import BadArgument
from shardc.dialects.aten.types import read_type
from shardc.report.traffic import transfers
from shardc.step.compile_step import CompiledStep

SUMS = ("dist.all_reduce", "dist.reduce_scatter")
LOSS_BYTES = 2
"""That the all-reduce of a bf16 loss sends on two devices, as any all-reduce of a number does."""


def compiled(
    mesh: dict[str, int], plan: str, reduce_dtype: torch.dtype | None, hidden: int = 128, **options: object
) -> CompiledStep:
    torch.manual_seed(0)
    dtype = torch.float32 if "autocast" in options else torch.bfloat16
    model = nn.Sequential(nn.Linear(64, hidden), nn.GELU(), nn.Linear(hidden, 64)).to(dtype)
    batch = torch.randn(16, 64, dtype=dtype), torch.randn(16, 64, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    given = {"mesh": mesh, "plan": plan, "reduce_dtype": reduce_dtype, "fuse": False, **options}
    return shardc.compile_step(model, optimizer, batch, loss=nn.functional.mse_loss, **given)


def sums(step: CompiledStep) -> list[tuple[str, torch.dtype]]:
    """The reductions of more than a number, with their dtypes."""
    found = []
    for op in _inside(step.compiled.program.operation):
        type_ = read_type(op.operands[0].type) if op.name in SUMS else None
        if type_ is not None and type_.shape:
            found.append((op.name, type_.dtype))
    return found


def _inside(op: ir.Operation) -> Iterator[ir.Operation]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _inside(inner.operation)


def sent(step: CompiledStep) -> dict[str, float]:
    """Bytes that a device sends, by collective."""
    found: dict[str, float] = {}
    for transfer in transfers(step.compiled.rank_module):
        found[transfer.kind] = found.get(transfer.kind, 0.0) + transfer.bytes_moved
    return found


PLANS: dict[str, tuple[dict[str, int], str, dict[str, object]]] = {
    "data": ({"data": 2}, "data", {}),
    "zero2": ({"data": 2}, "zero2", {}),
    "zero3": ({"data": 2}, "zero3", {}),
    "micro-batches": ({"data": 2}, "zero2", {"micro_batches": 2}),
    "each micro-batch by itself": ({"data": 2}, "data", {"micro_batches": 2, "per_micro_batch": True}),
    "a dim that does not divide": ({"data": 2}, "zero3", {"hidden": 37}),
    "tensor": ({"data": 2, "tensor": 2}, "zero3*tensor", {}),
    "pipeline": ({"pipe": 2, "data": 2}, "pipeline*zero2", {"micro_batches": 2}),
    "autocast": ({"data": 2}, "data", {"autocast": torch.bfloat16}),
    "kernels": ({"data": 2}, "zero3", {"fuse": True}),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", PLANS)
def test_gradients_are_summed_in_f32(case: str) -> None:
    mesh, plan, options = PLANS[case]
    narrow, wide = (compiled(mesh, plan, dtype, **options) for dtype in (None, torch.float32))
    own, found = sums(narrow), sums(wide)
    of_activations = 2 if "tensor" in mesh else 0
    assert len(found) <= len(own)
    assert [dtype for _, dtype in found].count(torch.bfloat16) <= of_activations
    proof = wide.check(steps=2)
    assert proof.passed, proof.render()


def test_bytes_double() -> None:
    narrow, wide = (sent(compiled({"data": 2}, "data", dtype)) for dtype in (None, torch.float32))
    assert set(narrow) == {"all_reduce"}
    assert wide["all_reduce"] - LOSS_BYTES == 2 * (narrow["all_reduce"] - LOSS_BYTES)
    narrow, wide = (sent(compiled({"data": 2}, "zero3", dtype)) for dtype in (None, torch.float32))
    assert wide["reduce_scatter"] == 2 * narrow["reduce_scatter"]
    assert wide["all_gather"] == narrow["all_gather"]


def test_one_device_has_nothing_to_sum() -> None:
    step = compiled({"data": 1}, "data", torch.float32)
    assert step.check().passed
    assert sums(step) == []


def test_another_dtype_is_refused() -> None:
    with pytest.raises(BadArgument, match=r"reduce_dtype is torch.bfloat16, not torch.float32 or None"):
        compiled({"data": 2}, "data", torch.bfloat16)
