"""``torch-split-softmax``: softmax along a dim that will be cut, as maxima and sums that may be partial.

So a loss over a vocabulary that devices share out sends one number a row for each of them, and never the
logits: the vocabulary-parallel cross entropy of Shoeybi et al., "Megatron-LM", 2019, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.passes.manager.attributes import copy_attributes
from shardc.passes.manager.program import Node, Program
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.partition.local_call import CallWriter, type_of
from shardc.passes.propagate.dist_propagate import propagate
from shardc.passes.propagate.state import PropagationState


@dataclass(frozen=True)
class TorchSplitSoftmax(ReadingPass):
    """Rewrites each ``_softmax`` and ``_log_softmax`` that will be cut along the dim that it normalises.

    Runs before ``dist-propagate``, and propagates on the side to see the cuts. Gradients that read such a
    softmax are rewritten with it. Everything else stays: on one device the native operator is faster.
    """

    name: ClassVar[str] = "torch-split-softmax"

    def apply(self, reading: Reading) -> bool:
        mesh, program = read_mesh(reading.module), reading.program
        if mesh is None or program is None or not any(n.spec.target in FORWARD for n in program.nodes):
            return False
        state = propagate(program, ShardingCodec(reading.module.context, mesh), mesh)
        builder = CallBuilder(program.block)
        cut = list(_cut(program, state, mesh))
        for node in cut:
            _rewrite(node, builder)
        return bool(cut)


def _cut(program: Program, state: PropagationState, mesh: Mesh) -> Iterator[Node]:
    """The calls to rewrite: forward ones that are cut over space, and the gradients that read them."""
    made: set[int] = set()
    for node in program.nodes:
        if node.spec.target in FORWARD and program.types[node.results[0]].shape:
            axes = state.sharding(node.operands[0]).dims[node.spec["dim"]]
            if any(a.size > 1 and not mesh.is_time(a) for a in axes):
                made.add(node.results[0])
                yield node
        elif node.spec.target in BACKWARD and node.operands[1] in made:
            yield node


class _RowWriter(CallWriter):
    """Calls on rows along ``dim``."""

    dim = -1

    def sub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.call("aten.sub.Tensor", a, b, 1)

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.call("aten.mul.Tensor", a, b)

    def largest(self, value: ir.Value) -> ir.Value:
        return self.call("aten.amax", value, (self.dim,), True)

    def sum(self, value: ir.Value) -> ir.Value:
        return self.call("aten.sum.dim_IntList", value, (self.dim,), True)


def _log_softmax(w: _RowWriter, x: ir.Value) -> ir.Value:
    shifted = w.sub(x, w.largest(x))
    return w.sub(shifted, w.call("aten.log", w.sum(w.call("aten.exp", shifted))))


def _softmax(w: _RowWriter, x: ir.Value) -> ir.Value:
    raised = w.call("aten.exp", w.sub(x, w.largest(x)))
    return w.call("aten.div.Tensor", raised, w.sum(raised))


def _log_softmax_backward(w: _RowWriter, grad: ir.Value, output: ir.Value) -> ir.Value:
    return w.sub(grad, w.mul(w.call("aten.exp", output), w.sum(grad)))


def _softmax_backward(w: _RowWriter, grad: ir.Value, output: ir.Value) -> ir.Value:
    weighted = w.mul(grad, output)
    return w.sub(weighted, w.mul(output, w.sum(weighted)))


FORWARD: dict[str, Callable[..., ir.Value]] = {"aten._log_softmax": _log_softmax, "aten._softmax": _softmax}
BACKWARD: dict[str, Callable[..., ir.Value]] = {
    "aten._log_softmax_backward_data": _log_softmax_backward,
    "aten._softmax_backward_data": _softmax_backward,
}


def _rewrite(node: Node, builder: CallBuilder) -> None:
    """Replace one call. 16-bit floats are computed in f32, as the native operators do inside."""
    old, result = node.op, type_of(node.op.results[0])
    writer = _RowWriter.at(builder, old)
    writer.dim = node.spec["dim"] % len(result.shape)
    formula = FORWARD.get(node.spec.target) or BACKWARD[node.spec.target]
    tensors = [v for v in old.operands if read_type(v.type) is not None]
    wide = max((type_of(v).dtype for v in tensors), key=lambda d: d.itemsize)
    wide = torch.float32 if wide.itemsize < 4 else wide
    new = writer.cast(formula(writer, *(writer.cast(v, wide) for v in tensors)), result.dtype)
    copy_attributes(old, new.owner)
    old.results[0].replace_all_uses_with(new)
    old.erase()
