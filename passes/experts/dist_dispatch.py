"""``dist-dispatch``: sends rows to the devices of their experts, and results back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shardc.diagnostics.base import remark
from shardc.diagnostics.passes.plan import ExpertGroups
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.location import source_line
from shardc.options.experts import CopiedExperts
from shardc.passes.experts.buffers import Buffers
from shardc.passes.experts.chosen_matrix import table_sum
from shardc.passes.experts.chunks import order_chunks
from shardc.passes.experts.copies import find_copies
from shardc.passes.experts.expert_weights import OUTER, PRODUCT, weight_argument
from shardc.passes.experts.layout import Layout
from shardc.passes.experts.torch_guard_experts import BEYOND, count_beyond
from shardc.passes.ingest.torch_share import drop_unread
from shardc.passes.manager.program import Node, Program
from shardc.passes.manager.reading import Reading, ReadingPass


@dataclass(frozen=True)
class DistDispatch(ReadingPass):
    """Dispatches rows to blocks of experts if a plan splits the matrices of ``shardc::expert_mm``.

    Rows are on the devices of their batch, and experts on the devices of their matrices. The first dim of a
    buffer [ways, blocks, rows, width] is the block of experts, the second the block of the batch. Moving the
    split from one to the other is an all-to-all. Row-wise calls between two products run on the experts'
    devices, so that rows are sent once in each direction. On one device the pass only reorders rows, so that
    losses and gradients do not change.
    """

    name: ClassVar[str] = "dist-dispatch"
    capacity: float = 0.0
    """Room for rows at each block of experts, as a multiple of an equal share; 0: room for all rows."""
    chunks: int = 1
    """Number of exchanges that send the rows: experts compute one chunk while the next is sent."""
    group: int = 0
    """Number of adjacent devices that exchange rows first, before groups exchange them; 0: all at once."""
    copies: CopiedExperts = ()
    """Experts that are copied to all devices, by name patterns of parameters or modules."""

    def apply(self, reading: Reading) -> bool:
        mesh, program = reading.sharded(level=1)
        codec = ShardingCodec(reading.module.context, mesh)
        groups: dict[int, list[Node]] = {}
        for node in program.nodes:
            if node.spec.target in (PRODUCT, OUTER) and node.spec["ways"] == 1:
                groups.setdefault(node.operands[2], []).append(node)
            elif (summed := table_sum(program, node)) is not None and summed[1] in groups:
                groups[summed[1]].append(node)
        changed, copies = False, find_copies(program, groups, self.copies)
        counts = {node.operands[0]: node for node in program.nodes if node.spec.target == BEYOND}
        for routing, nodes in groups.items():
            layout = self._layout(program, codec, nodes, copies.get(routing, ()))
            if layout is not None:
                count = counts.get(routing)
                buffers = Buffers(program, codec, layout, nodes, count or nodes[0], drops=bool(counts))
                buffers.write()
                if count is not None:
                    count_beyond(program, count, layout, buffers.routing)
                changed = True
        if changed:
            drop_unread(program.block)
            order_chunks(program.block)
        return changed

    def _layout(
        self, program: Program, codec: ShardingCodec, nodes: list[Node], copies: tuple[int, ...]
    ) -> Layout | None:
        """Return the layout of one routing's dispatched rows.

        None if the plan does not split experts, or if rows or experts do not divide evenly.
        """
        axes = _expert_axes(program, codec, nodes)
        if not axes:
            return None
        batch = _batch_axes(program, codec)
        (rows,), experts = program.types[nodes[0].operands[2]].shape, _experts(nodes[0])
        where = source_line(nodes[0].op.location)
        if copies and not any(a.overlaps(b) for a in axes for b in batch):
            problem = "expert_copies has no effect: no axis shards both the batch and the experts"
            remark("NotCopied", problem, where)
            copies = ()
        layout = Layout(rows, experts, axes, batch, self.capacity or None, self.chunks, self.group, copies)
        if experts % layout.ways == 0 and rows % layout.blocks == 0:
            _check_group(layout, where)
            return layout
        problem = f"{rows} rows in {layout.blocks} blocks, or {experts} experts on {layout.ways} devices,"
        what = "so rows are not sent to experts: each device computes all rows with its own experts"
        remark("NotDispatched", f"{problem} do not divide evenly, {what}", where)
        return None


def _check_group(layout: Layout, where: str | None) -> None:
    """Raise ExpertGroups if the group's size does not divide the devices; remark on unused groups."""
    group, ways = layout.group, layout.ways
    if not group or group % ways == 0 or layout.is_grouped:
        return
    if ways % group:
        axis = "*".join(axis.name for axis in layout.expert_axes)
        nearest = min((n for n in range(1, ways) if ways % n == 0), key=lambda n: abs(n - group))
        raise ExpertGroups(group=group, axis=axis, ways=ways, nearest=nearest, where=where)
    problem = "expert_group has no effect: no single axis shards both the batch and the experts"
    remark("NotGrouped", problem, where)


def _experts(node: Node) -> int:
    return node.spec["experts"] if node.spec.target == OUTER else node.spec["w"].shape[0]


def _expert_axes(program: Program, codec: ShardingCodec, nodes: list[Node]) -> Axes:
    """Return the axes that split the experts of a routing's matrices; none if the matrices differ in them."""
    found: set[Axes] = set()
    for node in nodes:
        position = weight_argument(program, node)
        if position is not None:
            found.add(program.annotated(position, codec).dims[0])
    return found.pop() if len(found) == 1 else ()


def _batch_axes(program: Program, codec: ShardingCodec) -> Axes:
    """Return the axes that split the batch: the longest list of axes on the first dim of any input."""
    cuts = [
        program.annotated(position, codec).dims[0]
        for position, (role, _) in enumerate(program.argument_keys())
        if role == "input" and program.types[program.arguments[position]].shape
    ]
    return max(cuts, key=len, default=())
