"""``torch-split-reductions``: rewrites calls along a dim that will be split as reductions of blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import ClassVar

import torch
from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import OpCall, fill
from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.passes.manager.attributes import copy_attributes, drop_attributes, observed
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.propagate.split.cuts import Cut, find_cuts
from shardc.passes.propagate.split.foresight import foresee
from shardc.passes.propagate.split.heads import HeadsWriter, find_exchanges
from shardc.passes.propagate.split.moves import Move, Mover, find_moves
from shardc.passes.propagate.split.writer import SplitWriter


@dataclass(frozen=True)
class TorchSplitReductions(ReadingPass):
    """Rewrites calls that will be split along the dim that they normalise, reduce, scan or sort.

    Softmax, logsumexp, layer and group norm, extrema with indices, top-k, cumulative sums, and their
    gradients become reductions and scans of blocks, so that devices send a few numbers a row instead of the
    rows. Sorts, Fourier transforms and scatters run with another dim split, if that sends no more; so does
    attention over the ``ulysses`` axes of its ``dist.attention``. The pass runs before ``dist-propagate``,
    and predicts shardings by a trial propagation. Other calls are unchanged, because native operators are
    faster on one device.
    """

    name: ClassVar[str] = "torch-split-reductions"

    def apply(self, reading: Reading) -> bool:
        mesh, program = read_mesh(reading.module), reading.program
        if mesh is None or program is None:
            return False
        codec = ShardingCodec(reading.module.context, mesh)
        seen = foresee(program, codec, mesh)
        if seen is None:
            return False
        moves = find_moves(seen)
        cuts, exchanges = list(find_cuts(seen, moves)), list(find_exchanges(seen))
        _move(moves, cuts, Mover(codec))
        builder = CallBuilder(program.block)
        for cut in cuts:
            rewrite(cut, builder)
        writer = HeadsWriter(codec, builder)
        for exchange in exchanges:
            writer.write(exchange)
        return bool(cuts or moves or exchanges)


def _move(moves: Mapping[int, Move], cuts: Sequence[Cut], mover: Mover) -> None:
    """Write the moves of calls without a better split form."""
    better = {id(cut.node) for cut in cuts}
    for move in moves.values():
        if id(move.node) not in better:
            mover.write(move)
    mover.erase_unread()


def rewrite(cut: Cut, builder: CallBuilder) -> None:
    """Write a call's split form before the call, and redirect its readers to it."""
    first, last = cut.flips or (cut.node, cut.node)
    writer = SplitWriter.at(builder, last.op)
    writer.ways = cut.ways
    tensors = [v for v in first.op.operands if read_type(v.type) is not None]
    if cut.form.widens:
        wide = _wide(cut.node.spec)
        tensors = [writer.cast(v, wide) for v in tensors]
    write = partial(cut.form.write, backwards=True) if cut.flips else cut.form.write
    made = write(writer, *fill(cut.node.spec.args, tensors))
    _replace(last.op, made, writer)
    for op in (last.op, *((cut.node.op, first.op) if cut.flips else ()), *reversed(writer.made)):
        if not any(list(result.uses) for result in op.results):
            op.erase()


def _wide(call: OpCall) -> torch.dtype:
    """Return the dtype to compute in: that of the floats, at least f32; without floats, the result's."""
    types = (*call.tensors, *(t for t in call.results if t is not None))
    floats = [t.dtype for t in types if t.dtype.is_floating_point]
    return reduce(torch.promote_types, floats, torch.float32) if floats else types[-1].dtype


def _replace(old: ir.Operation, made: Sequence[ir.Value], writer: SplitWriter) -> None:
    """Redirect the readers of ``old`` to ``made``, values of the same types, which also get its annotations.

    A refinement applies to the first result with a name.
    """
    names = observed(old)
    for number, (result, value) in enumerate(zip(old.results, made, strict=True)):
        type_ = read_type(result.type)
        if type_ is None:  # a gradient that nobody asked for
            continue
        value = writer.cast(value, type_.dtype)
        if value.owner not in writer.made:
            value = writer.call("aten.alias", value)
        copy_attributes(old, value.owner)
        if len(old.results) > 1:
            drop_attributes(value.owner, "dist.name")
            own = [name for name, place in names if place == number]
            if own:
                value.owner.attributes["dist.name"] = ir.StringAttr.get(",".join(own), old.context)
            if names and names[0][1] != number:
                drop_attributes(value.owner, "dist.refine")
        result.replace_all_uses_with(value)
