"""The file of ``shardc tune``: a picture."""

from __future__ import annotations

from pathlib import Path

from shardc.diagnostics.cli import UnwritableOutput
from shardc.report.tuning_svg import tuning_svg
from shardc.tuner.session import SessionResult


def write_plot(result: SessionResult, path: Path) -> None:
    """Raises UnwritableOutput."""
    try:
        path.write_text(tuning_svg(result))
    except OSError as error:
        raise UnwritableOutput(file=path, problem=error.strerror or str(error)) from None
