"""``shardc compile``: from a script to an artefact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shardc.artefact.folder import check_folder
from shardc.commands.script import read_script
from shardc.options.step import StepOptions
from shardc.report.plan_report import Report


def compile_script(script: Path, out: Path, options: StepOptions) -> Report:
    """Compile what ``script`` builds and write the folder ``out``; what was done, as a report."""
    check_folder(out.absolute())
    step = read_script(script).compile(options)
    step.save(out)
    return replace(step.plan, written=out)
