"""The files of ``shardc schedule``: CSV, pictures and traces of a schedule that was played through, and of a
measured run beside it."""

from __future__ import annotations

from pathlib import Path

from shardc.cost.timeline import Timeline
from shardc.dialects.pipe.csv_form import write_csv
from shardc.report.schedule_text import PlayedSchedule
from shardc.report.timeline_svg import Run, timeline_html, timeline_svg
from shardc.report.timeline_trace import read_trace, write_trace
from shardc.text_files import read_text, write_text


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
    """Write each file that has a path. ``measured``: the trace of a run, which is drawn too. Raises
    BadTrace, UnreadableInput, UnwritableOutput.
    """
    name = played.schedule.name
    runs = [Run(f"{name}, simulated", played.timeline, played.costs)]
    if measured is not None:
        runs.append(Run(f"{name}, measured", read_run(measured)))
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


def read_run(path: Path) -> Timeline:
    """The measured run in a trace. Raises BadTrace, UnreadableInput."""
    return read_trace(read_text(path), where=str(path))
