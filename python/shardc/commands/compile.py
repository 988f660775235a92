"""``shardc compile``: compiles a script to an artefact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from shardc.commands.script import Training, read_script
from shardc.options.step import StepOptions

if TYPE_CHECKING:
    from shardc.report.plan_report import Report


def compile_script(script: Path, out: Path, options: StepOptions) -> Report:
    """Compile what ``script`` builds, write the folder ``out`` and return a report."""
    return _compiled(_read(script, out), out, options)


def search_and_compile(script: Path, out: Path, given: Mapping[str, object]) -> Report:
    """Compile a script with ``plan="auto"`` and no mesh: a search picks both.

    Raises what the search raises.
    """
    training = _read(script, out)
    from shardc.planning.auto.without_mesh import search_for  # late import, for the same reason

    t, front_end = training, "the command line"
    with training.asks():
        found = search_for(t.model, t.optimizer, t.batch, t.loss, given, front_end)
    options = StepOptions.of({**given, **found.options}, front_end)
    return replace(_compiled(training, out, options), around=found.searched)


def _read(script: Path, out: Path) -> Training:
    """Return what a script builds, after checking that the folder can be written."""
    training = read_script(script)
    from shardc.artefact.folder import check_folder  # late import: errors in the script come first

    check_folder(out.absolute())
    return training


def _compiled(training: Training, out: Path, options: StepOptions) -> Report:
    step = training.compile(options)
    step.save(out)
    return replace(step.plan, written=out)
