"""Report of a simulated pipeline schedule: text, CSV, pictures and traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shardc.cost.pipeline import StageCost
from shardc.cost.timeline import Timeline
from shardc.diagnostics.passes.pipeline import BadTransfers
from shardc.diagnostics.text import table
from shardc.dialects.pipe.action import Steps
from shardc.dialects.pipe.csv_form import write_csv
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.weight_versions import versions_held
from shardc.passes.pipeline.checks.check_transfers import Mode
from shardc.report.pipeline_report import reads_of_ranks
from shardc.report.timeline_svg import Run, timeline_html, timeline_svg
from shardc.report.timeline_trace import read_run, write_trace
from shardc.text_files import write_text

COLUMNS = ("rank", "stages", "waits", "peak activations", "received values", "versions of weights")


@dataclass(frozen=True)
class PlayedSchedule:
    """Schedule that was checked and simulated.

    ``costs``: costs of the stages. ``steps``: actions with sends and receives, from the schedule's file or
    placed by shardc. ``refused``: the modes of sends
    (:data:`~shardc.passes.pipeline.checks.check_transfers.Mode`) that deadlock, with the reason. ``buffers``:
    maximum number of received values that each rank holds.
    """

    schedule: Schedule
    costs: Sequence[StageCost]
    timeline: Timeline
    steps: Steps
    refused: Mapping[Mode, BadTransfers]
    buffers: Sequence[int]

    def summary(self) -> str:
        """Return text on bubble, peak memory, buffers and versions of weights."""
        s, timeline = self.schedule, self.timeline
        parts = "micro-batches" if s.slices == 1 else f"slices of sequences, {s.slices} of each"
        lines = [
            f"{s.name}: {s.stages} stages on {s.ranks} ranks, {s.micro_batches} {parts}",
            f"bubble rate {timeline.bubble_rate:.4f}, step {timeline.step_s:g} s, "
            f"longest rank {timeline.longest_span_s:g} s",
        ]
        if s.changes_mathematics:
            lines.append("changes the mathematics: gradients of older weights are applied to newer ones")
        if s.reads:
            lines.append(f"longest path: {s.graph.longest} of {s.stages} stages")
        if len(s.routes) > 1:
            lines.append("holds the parameters twice: their gradients must be added")
        for mode, error in self.refused.items():
            lines.append(f"deadlocks with {mode} sends: {error.fields['step']} {error.fields['problem']}")
        return "\n".join([*lines, *self._table()])

    def _table(self) -> list[str]:
        """Return a line for each rank, with versions of weights if the schedule computes with older ones."""
        versions, idle = versions_held(self.schedule), self.timeline.idle_rates
        rows: list[tuple[str, ...]] = [COLUMNS]
        for rank, peak_bytes in enumerate(self.timeline.peak_bytes(self.costs)):
            stages = sorted(stage for stage, holder in self.schedule.rank_of.items() if holder == rank)
            kept = max((versions.get(stage, 1) for stage in stages), default=1)
            figures = f"{idle[rank]:.1%}", f"{peak_bytes:g}", str(self.buffers[rank]), str(kept)
            rows.append((str(rank), ",".join(map(str, stages)), *figures))
        columns = 6 if self.schedule.changes_mathematics else 5
        rows = [row[:columns] for row in rows]
        if self.schedule.reads:
            reads = ["reads", *reads_of_ranks(self.schedule)]
            rows = [(*row, more) for row, more in zip(rows, reads, strict=True)]
        return [line[2:] for line in table(rows, right=range(len(rows[0])))]


def write_files(
    played: PlayedSchedule,
    text: str,
    *,
    csv: Path | None = None,
    csv_transfers: Path | None = None,
    svg: Path | None = None,
    html: Path | None = None,
    trace: Path | None = None,
    measured: Path | None = None,
) -> None:
    """Write each file that has a path.

    ``measured``: the trace of a run, to be drawn beside the simulation. Raises BadTrace, UnreadableInput,
    UnwritableOutput.
    """
    name = played.schedule.name
    runs = [Run(f"{name}, simulated", played.timeline, played.costs)]
    runs += [] if measured is None else [Run(f"{name}, measured", read_run(measured))]
    files = {
        csv: lambda: write_csv(played.schedule),
        csv_transfers: lambda: write_csv(played.steps),
        svg: lambda: timeline_svg(runs),
        html: lambda: timeline_html(runs, text),
        trace: lambda: write_trace(runs),
    }
    for path, written in files.items():
        if path is not None:
            write_text(path, written())
