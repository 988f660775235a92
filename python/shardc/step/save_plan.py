"""Saving the plan of a compile."""

from __future__ import annotations

import json
from pathlib import Path

from shardc.diagnostics.cli import UnwritableOutput
from shardc.step.shard import Compiled


def save_plan(path: Path, compiled: Compiled) -> None:
    """Write the plan as JSON. Raises UnwritableOutput."""
    try:
        path.write_text(json.dumps(compiled.plan_json, indent=1) + "\n")
    except OSError as error:
        raise UnwritableOutput(file=path, problem=error.strerror or str(error)) from error
