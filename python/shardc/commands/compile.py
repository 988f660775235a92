"""``shardc compile``: from a script to an artefact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shardc.commands.script import read_script
from shardc.options.step import StepOptions

if TYPE_CHECKING:
    from shardc.report.plan_report import Report


def compile_script(script: Path, out: Path, options: StepOptions) -> Report:
    """Compile what ``script`` builds and write the folder ``out``; what was done, as a report."""
    training = read_script(script)
    from shardc.artefact.folder import check_folder  # the compiler: what a script gets wrong is told before

    check_folder(out.absolute())
    step = training.compile(options)
    step.save(out)
    return replace(step.plan, written=out)
