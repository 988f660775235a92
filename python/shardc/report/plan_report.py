"""Report of a compile: mesh, plan, memory, collectives, remarks."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from torch_mlir import ir

from shardc.backends.torch.description import edges
from shardc.cost.step.step_time import StepTime
from shardc.diagnostics.base import Remark
from shardc.diagnostics.text import size_text, table
from shardc.passes.manager.program import micro_batches_apart
from shardc.passes.search.answer.answer import Answer
from shardc.report.device_work import DeviceWork
from shardc.report.origin_text import origin_text
from shardc.report.pipeline_report import PipelineReport, reads_of_ranks
from shardc.report.source_lines import remark_text
from shardc.report.traffic import UPDATE, totals, transfers
from shardc.runtime.comm.layout import Leaf
from shardc.runtime.comm.mesh import Mesh

ROLES = ("param", "opt_state", "buffer", "input")
Entry = Mapping[str, Any]
"""Entry of a manifest."""
Row = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Report:
    """Report of a compiled step, ``step.plan``. Printing it shows the text.

    ``shardings``: rows (role, name, shape, layout, why). ``traffic``: rows (phase, axes, kind, count, bytes
    per device in total). ``local_bytes``: bytes per device by role. ``seconds``: compile time by pass.
    ``written``: the artefact's folder, if it was saved. ``kernels``: kernels of the manifest. ``peak``: text
    on peak memory. ``fusion``: text on the effect of forbidden and forced fusion edges.
    ``micro_batches_apart``: number of micro-batches that run as separate programs. ``work``: a device's work,
    compared with the single-device program. ``time``: estimated time on the step's cluster. ``searched``:
    result of the search for the plan. ``around``: lines on the other choices of that search.

    Example:
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, mesh={"data": 2}, plan="zero3")
        >>> step.plan.plan, step.plan.devices
        ('zero3', 2)
    """

    mesh: str
    plan: str
    shardings: list[Row]
    local_bytes: dict[str, int]
    traffic: list[tuple[str, str, str, int, float]]
    remarks: list[Remark]
    seconds: dict[str, float]
    devices: int = 0
    written: Path | None = None
    kernels: Sequence[Entry] = ()
    peak: str = ""
    pipeline: PipelineReport | None = None
    fusion: str = ""
    micro_batches_apart: int = 0
    work: DeviceWork | None = None
    time: StepTime | None = None
    searched: Answer | None = None
    around: Sequence[str] = ()

    def render(self) -> str:
        """Return the whole report as text."""
        parts = [[self.title()], self._pipeline(), self._memory(), self._time(), self._work()]
        parts += [self._searched(), self._collectives(), self._kernels()]
        parts += [self._layouts(), self._remarks(), self._end()]
        return "\n\n".join("\n".join(lines) for lines in parts if lines)

    def title(self) -> str:
        """Return a line with the mesh and the plan."""
        devices = f" ({self.devices} device{'' if self.devices == 1 else 's'})" if self.devices else ""
        text = f"mesh {self.mesh}{devices}   plan {self.plan}"
        if self.micro_batches_apart:
            what = "micro-batches run as separate programs, which changes the mathematics"
            text += f"\n{self.micro_batches_apart} {what}"
        return text

    def _pipeline(self) -> list[str]:
        if self.pipeline is None:
            return []
        ranks = [
            (
                str(n),
                ", ".join(map(str, r.stages)),
                size_text(r.state_bytes),
                "?" if r.peak_bytes is None else size_text(r.peak_bytes),
                size_text(r.sent_bytes),
            )
            for n, r in enumerate(self.pipeline.ranks)
        ]
        stages = [
            (str(n), s.recompute, size_text(s.before_bytes), size_text(s.kept_bytes), str(s.in_flight))
            for n, s in enumerate(self.pipeline.kept)
        ]
        title = "activations that a stage keeps for backward, for each micro-batch in flight"
        names = ("rank", "stages", "state of a device", "peak of a device", "sends")
        if self.pipeline.schedule.reads:
            names, reads = (*names, "reads"), reads_of_ranks(self.pipeline.schedule)
            ranks = [(*row, read) for row, read in zip(ranks, reads, strict=True)]
        kept = ("stage", "recompute", "without recompute", "kept", "in flight")
        right = (2, 3, 4)
        rows = table([names, *ranks], (*right, 5))
        lines = [self.pipeline.title, *rows, title, *table([kept, *stages], right)]
        return lines + self.pipeline.evicted

    def _memory(self) -> list[str]:
        if self.pipeline is not None:  # local_bytes and peak describe the program before the cut into stages
            return []
        rows = [(role, size_text(size)) for role, size in self.local_bytes.items()]
        rows.append(("total", size_text(sum(self.local_bytes.values()))))
        peak = [f"a step takes {self.peak}"] if self.peak else []
        return ["bytes on each device", *table(rows, right=(1,)), *peak]

    def _time(self) -> list[str]:
        lines = [] if self.time is None else self.time.render()
        return [f"estimated {lines[0]}, before ops are fused", *lines[1:]] if lines else []

    def _work(self) -> list[str]:
        lines = [] if self.work is None else self.work.render()
        if lines and self.pipeline is not None:
            lines[0] += ", before it was cut into stages"
        return lines

    def _searched(self) -> list[str]:
        return [*self.around, *([] if self.searched is None else self.searched.render())]

    def _collectives(self) -> list[str]:
        of = " before it was cut" if self.pipeline is not None else ""
        columns = "phase, axes, kind, count, bytes that each device sends in total"
        title = f"collectives of a step{of}: {columns}"
        if not self.traffic:
            return [title, "  none"]
        total = ("total", "", "", sum(row[3] for row in self.traffic), sum(row[4] for row in self.traffic))
        rows = [
            (phase or UPDATE, axes, kind, str(n), size_text(moved))
            for phase, axes, kind, n, moved in (*self.traffic, total)
        ]
        return [title, *table(rows, right=(3, 4))]

    def _kernels(self) -> list[str]:
        calls = sum(k["calls"] for k in self.kernels)
        ops = sum(k["calls"] * len(k["ops"]) for k in self.kernels)
        kernels = f"kernels: {calls} calls of {len(self.kernels)} compiled kernels in place of {ops:,} ops"
        return [*([kernels] if self.kernels else []), *([self.fusion] if self.fusion else [])]

    def _layouts(self) -> list[str]:
        # `shardc explain` shows the ops through which a sharding was propagated.
        counts = Counter(
            (role, layout, origin_text(why, name, shape, through=False))
            for role, name, shape, layout, why in self.shardings
        )
        ordered = sorted(counts.items(), key=lambda item: (ROLES.index(item[0][0]), -item[1], item[0]))
        rows = [(f"{count} x", *row) for row, count in ordered]
        title = "shardings: count, role, axes of each dim (* = whole), origin"
        return [title, *table(rows, right=(0,))]

    def _remarks(self) -> list[str]:
        return ["remarks", *(f"  {remark_text(r)}" for r in self.remarks)] if self.remarks else []

    def _end(self) -> list[str]:
        lines = []
        if self.seconds:
            spent = ", ".join(f"{name} {s:.2f}" for name, s in self.seconds.items())
            text = f"compiled in {sum(self.seconds.values()):.2f} s: {spent}"
            lines += textwrap.wrap(text, 110, subsequent_indent="  ", break_on_hyphens=False)
        if self.written is not None:
            lines += [f"written to {self.written}; next: shardc check {self.written}, or"]
            lines += [f"  shardc run {self.written} --nproc {self.devices}"]
        return lines

    __str__ = render


def make_report(
    rank_module: ir.Module,
    plan: str,
    remarks: list[Remark],
    seconds: dict[str, float] | None = None,
    kernels: Sequence[Entry] = (),
    peak: str = "",
    pipeline: PipelineReport | None = None,
    fusion: str = "",
    work: DeviceWork | None = None,
    time: StepTime | None = None,
) -> Report:
    """Return the report of a level 3 module. The other arguments are fields of :class:`Report`."""
    axes, leaves, whys = edges(rank_module)
    mesh = Mesh.read(axes)
    shardings: list[Row] = []
    sizes: dict[str, int] = dict.fromkeys(ROLES, 0)
    for entry, why in zip(leaves, whys, strict=True):
        if entry["role"] in ROLES:
            leaf = Leaf.read(entry)
            sizes[leaf.role] += prod(leaf.local_shape(mesh)) * leaf.dtype.itemsize
            shardings.append((leaf.role, leaf.name, str(list(leaf.shape)), layout(entry["sharding"]), why))
    traffic = [
        (phase, "+".join(axes), kind, n, moved)
        for (phase, axes, kind), (n, moved) in totals(transfers(rank_module)).items()
    ]
    text = " x ".join(map(_axis, axes))
    told = [*remarks, *(() if work is None else work.remarks())]
    more = (mesh.world_size, None, kernels, peak, pipeline, fusion, micro_batches_apart(rank_module), work)
    return Report(
        text, plan, shardings, sizes, traffic, told, seconds or {}, *more, time, Answer.read(rank_module)
    )


def _axis(axis: Entry) -> str:
    """Format an axis, as ``micro 4 (time)``. For unequal shares, add the iterations of each position."""
    trips = ":".join(map(str, axis.get("trips", ())))
    told = f" (time, {trips})" if trips else " (time)"
    return f"{axis['name']} {axis['size']}" + (told if axis["kind"] == "time" else "")


def layout(sharding: Entry) -> str:
    """Format a sharding's dims, as ``[data, *]``."""
    dims = [
        "+".join(name if pre == 1 else f"{name}/{pre}" for name, pre, _ in dim) or "*"
        for dim in sharding["dims"]
    ]
    return f"[{', '.join(dims)}]"
