"""Trace files. The suffix of a file's name decides its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shardc.report.traces.chrome import chrome_trace
from shardc.report.traces.perfetto import SUFFIXES, perfetto_trace
from shardc.report.traces.tracks import Process
from shardc.text_files import writing


def write_trace_file(path: Path, processes: Sequence[Process]) -> None:
    """Write a trace: Perfetto's protocol buffers for ``.pftrace`` and ``.perfetto-trace``, else Chrome's
    JSON.

    Raises UnwritableOutput.
    """
    is_perfetto = path.suffix in SUFFIXES
    content = perfetto_trace(processes) if is_perfetto else chrome_trace(processes).encode()
    with writing(path):
        path.write_bytes(content)


def write_files(folder: Path, files: Mapping[Path, bytes]) -> None:
    """Create a folder and write files into it. Raises UnwritableOutput."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
