"""``torch-lift-pads``: merges pads of images and sequences into convolutions and maxima that read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import OpCall
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.rules.spatial.convolution import FIRST_PIXELS
from shardc.dialects.rules.spatial.neighbours import Windows, setting_at
from shardc.dialects.rules.spatial.padded import PADDED, PADDED_BACKWARD
from shardc.dialects.rules.spatial.pads import CONSTANT, amounts
from shardc.passes.ingest.torch_share import drop_unread
from shardc.passes.manager.attributes import attributes_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.pad.pools_of_pads import POOL_BACKWARD, find_pools
from shardc.passes.pad.undone import CIRCULAR, crop_terms, readers, takes_off

_FORWARD, _BACKWARD = "aten.convolution", "aten.convolution_backward"


@dataclass(frozen=True)
class TorchLiftPads(ReadingPass):
    """Replaces ``convolution(constant_pad_nd(x, p), w)``, and circular pads, by
    ``shardc::padded_convolution``, and ``max_pool2d(constant_pad_nd(x, p))`` by ``shardc::padded_max_pool``.

    Runs only if a plan splits an input behind its first dim. The padded image does not divide into equal
    blocks that match the windows. The image itself does, and a halo holds its padding. Networks
    from TensorFlow have such asymmetric pads: less before the image than after it. So have convolutions of
    speech that see no later sample.
    """

    name: ClassVar[str] = "torch-lift-pads"

    def apply(self, reading: Reading) -> bool:
        mesh, program = read_mesh(reading.module), reading.program
        if mesh is None or program is None or not _cuts_inputs(program, mesh, reading.module.context):
            return False
        builder = CallBuilder(program.block)
        cropped = crop_terms(program, builder, (_BACKWARD, POOL_BACKWARD))
        if cropped:
            drop_unread(program.block)
            program = Reading(reading.module).program
            assert program is not None
        found = [(node, pad) for node in program.nodes if (pad := _pad_of(program, node)) is not None]
        pools = list(find_pools(program))
        for node, pad in found:
            _lift(program, builder, node, pad)
        for pool in pools:
            pool.write(program, builder)
        drop_unread(program.block)
        return bool(cropped or found or pools)


class _Pad(NamedTuple):
    """A padded image, its pixels of padding before and after each dim, and whether padding is circular."""

    image: int
    before: tuple[int, ...]
    behind: tuple[int, ...]
    ring: bool


def _cuts_inputs(program: Program, mesh: Mesh, context: ir.Context) -> bool:
    codec = ShardingCodec(context, mesh)
    inputs = [n for n, _ in enumerate(program.arguments) if program.argument_key(n)[0] == "input"]
    layouts = [program.annotated(position, codec).dims for position in inputs]
    return any(any(dims[1:]) for dims in layouts)


def _pad_of(program: Program, node: Node) -> _Pad | None:
    """Return the pad that a convolution or its gradient reads; None if it cannot be merged."""
    call = node.spec
    if call.target not in (_FORWARD, _BACKWARD) or call["transposed"]:
        return None
    producer = program.producer[node.operands[0 if call.target == _FORWARD else 1]]
    source = program.nodes[producer] if producer >= 0 else None
    pad = None if source is None else _read_pad(source, call)
    if pad is None or source is None or not _goes_on(call, source.spec.tensors[0], pad):
        return None
    if call.target == _BACKWARD and not all(
        takes_off(reader.spec, source.spec) for reader in readers(program, node.results[0])
    ):
        return None
    return None if call.target == _BACKWARD and node.results[0] in program.returns else pad


def _read_pad(source: Node, call: OpCall) -> _Pad | None:
    spec, rank = source.spec, len(call["input"].shape) - FIRST_PIXELS
    if spec.target not in (CONSTANT, CIRCULAR) or (spec.target == CONSTANT and spec["value"] != 0):
        return None
    pairs = (*amounts(spec), *(0, 0) * rank)
    own = tuple(setting_at(call["padding"], d) for d in range(rank))
    is_ring = spec.target == CIRCULAR
    if min(pairs) < 0 or any(pairs[2 * rank :]) or (is_ring and any(own)):
        return None
    before, behind = (
        tuple(own[d] + pairs[2 * (rank - 1 - d) + side] for d in range(rank)) for side in (0, 1)
    )
    return _Pad(source.operands[0], before, behind, is_ring)


def _goes_on(call: OpCall, image: TensorType, pad: _Pad) -> bool:
    """Return whether equal blocks of the image correspond to equal blocks of windows."""
    made = call.result if call.target == _FORWARD else call["grad_output"]
    sizes = zip(image.shape[2:], made.shape[2:], call["weight"].shape[2:], pad.before, strict=True)
    for d, (x, y, z, before) in enumerate(sizes):
        windows = Windows(x, y, z, setting_at(call["stride"], d), before, setting_at(call["dilation"], d))
        if not windows.aligned:
            return False
    return True


def _lift(program: Program, builder: CallBuilder, node: Node, pad: _Pad) -> None:
    op, spec, image = node.op, node.spec, program.values[pad.image]
    rank = len(pad.before)
    stride, dilation = (tuple(setting_at(spec[s], d) for d in range(rank)) for s in ("stride", "dilation"))
    settings = (stride, pad.before, pad.behind, dilation, spec["groups"], pad.ring)
    if spec.target == _FORWARD:
        args: Sequence[object] = (image, *op.operands[1:3], *settings)
        target, types = PADDED, list(spec.results)
    else:
        args = (op.operands[0], image, op.operands[2], *settings, spec["output_mask"])
        target, types = PADDED_BACKWARD, list(spec.results)
        types[0] = program.types[pad.image] if types[0] is not None else None
    call = builder.call(target, args, types, op.location, ir.InsertionPoint(op), attributes_of(op))
    for reader in readers(program, node.results[0]) if spec.target == _BACKWARD else ():
        reader.op.results[0].replace_all_uses_with(call.results[0])
    for old, new in list(zip(op.results, call.results, strict=True))[spec.target == _BACKWARD :]:
        old.replace_all_uses_with(new)
