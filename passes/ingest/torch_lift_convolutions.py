"""``torch-lift-convolutions``: recognises causal convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import OpCall
from shardc.passes.ingest.torch_share import drop_unread
from shardc.passes.manager.attributes import attributes_of
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import Node, Program, find_function, read_program

_FORWARD, _BACKWARD = "aten.convolution", "aten.convolution_backward"
_NAMES = {f"torch.{_FORWARD}", f"torch.{_BACKWARD}"}


@dataclass(frozen=True)
class TorchLiftConvolutions(Pass):
    """``slice(convolution(x, w, padding=k - 1), 0, s)`` becomes ``shardc::causal_convolution(x, w)``.

    State-space layers and linear attention have such short convolutions along the sequence. The padded
    convolution's result is k - 1 elements longer than the sequence, so a split of the sequence would not
    propagate through it.
    """

    name: ClassVar[str] = "torch-lift-convolutions"

    def run(self, module: ir.Module) -> None:
        function = find_function(module)
        ops = [] if function is None else function.regions[0].blocks[0].operations
        program = read_program(module) if any(o.operation.name in _NAMES for o in ops) else None
        if program is None:
            return
        builder = CallBuilder(program.block)
        for node in program.nodes:
            if node.spec.target == _FORWARD and _is_padded(node.spec):
                _lift(program, builder, node)
            elif node.spec.target == _BACKWARD and _is_padded(node.spec):
                _lift_backward(program, builder, node)
        drop_unread(program.block)


def _is_padded(spec: OpCall) -> bool:
    """Return whether a sequence is padded by the full reach of windows at both ends."""
    size = spec["weight"].shape[2:]
    if len(size) != 1 or size[0] == 1 or spec["transposed"] or spec["stride"] != (1,):
        return False
    return spec["padding"] == (spec["dilation"][0] * (size[0] - 1),)


def _lift(program: Program, builder: CallBuilder, node: Node) -> None:
    made, length = node.results[0], node.spec["input"].shape[2]
    users = [program.nodes[n] for n in program.users[made]]
    if not users or made in program.returns or not all(_is_front(user.spec, length) for user in users):
        return
    op = node.op
    args = (*op.operands[:3], node.spec["dilation"][0], node.spec["groups"])
    call = builder.call(
        "shardc.causal_convolution",
        args,
        users[0].spec.results,
        op.location,
        ir.InsertionPoint(op),
        attributes_of(op),
    )
    for user in users:
        user.op.results[0].replace_all_uses_with(call.results[0])


def _is_front(spec: OpCall, length: int) -> bool:
    """Return whether a call slices the first ``length`` elements of a sequence."""
    if spec.target != "aten.slice.Tensor" or spec["dim"] % len(spec["self"].shape) != 2 or spec["step"] != 1:
        return False
    return spec["start"] in (0, None) and spec.result.shape[2] == length


def _lift_backward(program: Program, builder: CallBuilder, node: Node) -> None:
    producer = program.producer[node.operands[0]]
    grad = program.nodes[producer] if producer >= 0 else None
    if grad is None or not _extends(grad.spec, node.spec["input"].shape[2]):
        return
    op, spec = node.op, node.spec
    args = (
        program.values[grad.operands[0]],
        *op.operands[1:3],
        spec["dilation"][0],
        spec["groups"],
        spec["output_mask"],
    )
    call = builder.call(
        "shardc.causal_convolution_backward",
        args,
        spec.results,
        op.location,
        ir.InsertionPoint(op),
        attributes_of(op),
    )
    for old, new in zip(op.results, call.results, strict=True):
        old.replace_all_uses_with(new)


def _extends(spec: OpCall, length: int) -> bool:
    """Return whether a call is the gradient of such a slice: ``length`` elements, then zeros."""
    if spec.target == "aten.slice_backward":
        at_front = spec["dim"] % len(spec.result.shape) == 2 and spec["start"] == 0 and spec["step"] == 1
        return at_front and spec.tensors[0].shape[2] == length
    if spec.target == "aten.constant_pad_nd":
        return len(spec["pad"]) == 2 and spec["pad"][0] == 0 and spec["value"] == 0
    return False
