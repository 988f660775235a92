"""The files of ``shardc schedule``: CSV, pictures and traces of a schedule that was played through, and of a
measured run beside it."""

from __future__ import annotations

from pathlib import Path

from shardc.commands.schedule import PlayedSchedule
from shardc.cost.timeline import Timeline
from shardc.diagnostics.cli import UnreadableInput, UnwritableOutput
from shardc.dialects.pipe.csv_form import write_csv
from shardc.report.timeline_svg import Run, timeline_html, timeline_svg
from shardc.report.timeline_trace import read_trace, write_trace


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
    """Writes each file that has a path. ``measured``: the trace of a run, which is drawn too. Raises
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
            try:
                path.write_text(written())
            except OSError as error:
                raise UnwritableOutput(file=path, problem=error) from None


def read_run(path: Path) -> Timeline:
    """The measured run in a trace. Raises BadTrace, UnreadableInput."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableInput(file=path, problem=error) from None
    return read_trace(text, where=str(path))
