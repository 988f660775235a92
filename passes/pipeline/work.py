"""What ops cost, for balancing stages: an estimate good enough to compare parts of one program."""

from __future__ import annotations

from math import prod

from torch_mlir import ir

from shardc.dialects.aten.call import CallReader
from shardc.dialects.aten.types import TensorType

FLOPS_PER_BYTE = 50.0
"""How many floating-point operations a device does while it moves a byte of memory (H100:
989 TFLOP/s, 3.35 TB/s, half of it reached)."""
WIRE = 8.0
"""How much longer a byte takes to another device than from memory (H100: NVLink sends 450 GB/s)."""


def work(op: ir.Operation, reader: CallReader) -> float:
    """The cost of one op in bytes of memory moved; a matmul's arithmetic counts as bytes at ``FLOPS_PER_BYTE``."""
    if not op.name.startswith("torch.") or str(op.results[0].type) == "!torch.int":
        return 0.0
    spec = reader.read(op).spec
    results = [r for r in spec.results if r is not None]
    moved = sum(t.size_bytes for t in (*_read_whole(spec.target, spec.tensors), *results))
    return moved + _flops(spec.target, spec.tensors, results) / FLOPS_PER_BYTE


def _read_whole(target: str, tensors: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """The operands that a call reads all of: of an embedding's table it reads some rows."""
    return tensors[1:] if target == "aten.embedding" else tensors


def _flops(target: str, tensors: tuple[TensorType, ...], results: list[TensorType]) -> float:
    if target in ("aten.mm", "aten.bmm"):
        return 2.0 * results[0].numel * tensors[0].shape[-1]
    if target == "aten.addmm":
        return 2.0 * results[0].numel * tensors[1].shape[-1]
    if target == "aten.convolution":
        weight = tensors[1]
        return 2.0 * results[0].numel * prod(weight.shape[1:])
    if target.startswith("shardc.attention"):
        queries, keys = tensors[0], tensors[1]
        return 4.0 * queries.numel * keys.shape[-2]
    return 0.0
