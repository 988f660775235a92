"""Estimates of a program's kernels and calls on a GPU, which need not be present."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch_mlir import ir

from shardc.backends.body.extract import kernel_name
from shardc.backends.estimate import Estimated
from shardc.backends.triton.attention.library_call import default_library
from shardc.backends.triton.attention.shared import padded
from shardc.backends.triton.emit.emit import emit_kernel
from shardc.cost.attention import Scores
from shardc.cost.kernel import Estimate
from shardc.cost.library import attention_call, grouped_matmul_call, matmul_call, stream_call
from shardc.cost.machine import Gpu
from shardc.cost.work import matmul_sizes
from shardc.dialects.aten.call import CallReader, target_name
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.kern.grouped_matmul import group_sizes
from shardc.dialects.kern.kernel import KernelOp, operand_types, result_types
from shardc.dialects.location import source_line
from shardc.passes.fuse.lower.matmul import TARGETS as MATMULS
from shardc.passes.fuse.reading.view import VIEWS
from shardc.passes.fuse.structured.grouped_matmul import GROUPED
from shardc.passes.manager.program import find_function

_ATTENTION = ("shardc.attention", "shardc.attention_backward")
_NO_CALLS = ("torch.prim", "torch.constant", "torch.vtensor")
_NARROW = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Estimator:
    """Estimator for ``target``. ``tf32``: torch allows TF32 in f32 matmuls."""

    target: Gpu
    tf32: bool = False

    def program(self, module: ir.Module) -> list[Estimated]:
        """Return the kernels and calls of a step, in order. Raises (Triton)KernelNotSupported."""
        function = find_function(module)
        return [] if function is None else list(self._block(module, function.regions[0].blocks[0], 1, {}))

    def _block(
        self, module: ir.Module, block: ir.Block, times: int, emitted: dict[str, Estimate | None]
    ) -> Iterator[Estimated]:
        for view in block.operations:
            op = view.operation
            if op.name == "dist.loop":
                yield from self._block(module, op.regions[0].blocks[0], times * _trips(module, op), emitted)
            elif op.name == KernelOp.OPERATION_NAME:
                known = kernel_name(op) in emitted
                if not known:
                    emitted[kernel_name(op)] = emit_kernel(op, self.target, tf32=self.tf32).estimate
                made = emitted[kernel_name(op)] or self._flat(op, first=not known)
                yield Estimated(kernel_name(op), True, source_line(op.location), times, made)
            elif (call := self._call(op)) is not None:
                yield Estimated(target_name(op), False, source_line(op.location), times, call)

    def _flat(self, op: ir.Operation, first: bool) -> Estimate:
        """Return the estimate of a member of a flat kernel, which is launched once for all members."""
        made = stream_call(sum(t.size_bytes for t in (*operand_types(op), *result_types(op))), self.target)
        return made if first else replace(made, seconds=made.seconds - self.target.launch_s)

    def _call(self, op: ir.Operation) -> Estimate | None:
        """Return the estimate of a call; None for views, constants and collectives, which launch nothing."""
        if not op.name.startswith("torch.") or op.name.startswith(_NO_CALLS):
            return None
        results = [type_ for r in op.results if (type_ := read_type(r.type)) is not None]
        target = target_name(op)
        if not results or target in VIEWS:
            return None
        operands = [type_ for v in op.operands if (type_ := read_type(v.type)) is not None]
        if any(not t.is_static for t in (*operands, *results)):
            return None
        if target in MATMULS:
            return self._matmul(operands)
        if target == GROUPED and len(operands) == 3:
            left, right, ends = operands
            sizes = group_sizes(left.shape, right.shape, ends.shape[0])
            return grouped_matmul_call(*sizes, left.dtype.itemsize, self._has_matrix(left.dtype), self.target)
        if target.startswith(_ATTENTION):
            return self._attention(op)
        return stream_call(sum(t.size_bytes for t in (*operands, *results)), self.target)

    def _matmul(self, operands: list[TensorType]) -> Estimate:
        *added, x, y = operands
        more, sizes = sum(t.size_bytes for t in added), matmul_sizes(x.shape, y.shape)
        return matmul_call(*sizes, x.dtype.itemsize, self._has_matrix(x.dtype), self.target, more)

    def _attention(self, op: ir.Operation) -> Estimate:
        """Return the estimate of ``shardc.runtime.operators.attention``."""
        spec = CallReader().read(op).spec
        q, k, v = spec["q"], spec["k"], spec["v"]
        (batch, heads, queries, size), (keys, value_size) = q.shape, (k.shape[2], v.shape[3])
        sizes = batch * heads, batch * heads, queries, keys, padded(size), padded(value_size)
        seen, matrix = 0.5 if spec["causal"] else 1.0, self._has_matrix(q.dtype)
        forward = Scores("forward", *sizes, q.dtype.itemsize, seen, matrix)
        library = default_library(op) if self.target.backend == "cuda" else None
        return attention_call(forward, "_backward" in spec.target, library, self.target)

    def _has_matrix(self, dtype: torch.dtype) -> bool:
        """Return True if matrix units support the dtype."""
        return dtype in _NARROW or (dtype == torch.float32 and self.tf32)


def _trips(module: ir.Module, loop: ir.Operation) -> int:
    mesh = read_mesh(module)
    assert mesh is not None
    codec = ShardingCodec(module.context, mesh)
    return codec.mesh.turns(codec.read_axes(ir.ArrayAttr.get([loop.attributes["axis"]], loop.context))[0])
