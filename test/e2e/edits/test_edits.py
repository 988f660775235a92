"""A step that the cache holds is never used for another: a script is edited in a hundred places, one at a
time, and each second launch must equal one with an empty cache.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from edits import EDITS, Changes, Edit
from script_launch import Launch, launched

from shardc.step import once

PROJECT = Path(__file__).parent / "project"
LAUNCH = Path(__file__).parent / "script_launch.py"
KINDS = {
    *("script", "model", "configuration", "default argument", "closure", "global", "attribute", "optimizer"),
    *("patched method", "requires_grad", "option", "plan", "batch", "autograd function", "constant"),
    *("imported helper", "environment"),
}


@dataclass(frozen=True)
class Workplace:
    """The sources of a script, the caches of its launches, and what the unedited script gave."""

    folder: Path

    @property
    def sources(self) -> Path:
        return self.folder / "project"

    @contextmanager
    def edited(self, edit: Edit) -> Iterator[pytest.MonkeyPatch]:
        """The script with an edit, and its environment."""
        file = self.sources / edit.file
        text = file.read_text()
        assert not edit.old or text.count(edit.old) == 1
        edited = text.replace(edit.old, edit.new) if edit.old else text
        assert edited.count("\n") == text.count("\n")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in edit.environment.items():
                patch.setenv(name, value)
            file.write_text(edited)
            try:
                yield patch
            finally:
                file.write_text(text)

    def launch(self, patch: pytest.MonkeyPatch, cache: str, *, in_process: bool = True) -> Launch:
        """One launch with the cache of that name; all artefacts lie in the same folder."""
        patch.setattr(once, "added", set())  # rules of other tests in this process: no step is kept then
        patch.setenv("SHARDC_CACHE_DIR", str(self.folder / cache))
        patch.setenv("SHARDC_STEP_CACHE", "1")
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        if in_process:
            return launched(self.sources, out)
        subprocess.run([sys.executable, str(LAUNCH), str(self.sources), f"{out}.json"], check=True)
        return Launch(**json.loads((self.folder / "out.json").read_text()))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("edits")
    shutil.copytree(PROJECT, folder / "project", ignore=shutil.ignore_patterns("__pycache__"))
    return Workplace(folder)


@pytest.fixture(scope="module")
def unedited(place: Workplace) -> Launch:
    """The script as it is; its step is in the cache ``warm``."""
    with pytest.MonkeyPatch.context() as patch:
        first, second = place.launch(patch, "warm"), place.launch(patch, "warm")
    assert first == second and second.is_loaded and not first.is_loaded
    assert len(set(first.losses)) == len(first.losses) == 3
    return first


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.drawn(40)
@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_a_second_launch_of_an_edited_script_equals_one_with_an_empty_cache(
    edit: Edit, place: Workplace, unedited: Launch
) -> None:
    """The cache ``warm`` has the unedited step, and those of all edits before."""
    with place.edited(edit) as patch:
        second = place.launch(patch, "warm")
        try:
            anew, again = place.launch(patch, "empty"), place.launch(patch, "empty")
        finally:
            shutil.rmtree(place.folder / "empty", ignore_errors=True)
    assert second == anew == again
    assert again.is_loaded and not anew.is_loaded
    check_effect(edit, unedited, anew)
    assert edit.changes is not Changes.NOTHING or second.is_loaded


IN_PROCESSES = [
    edit
    for kind in ("environment", "configuration", "patched method", "constant", "imported helper", "plan")
    for edit in [edit for edit in EDITS if edit.kind == kind][:1]
]


@pytest.mark.slow
@pytest.mark.parametrize("edit", IN_PROCESSES, ids=str)
def test_so_it_is_in_processes_of_their_own(edit: Edit, place: Workplace, unedited: Launch) -> None:
    with place.edited(edit) as patch:
        second = place.launch(patch, "warm", in_process=False)
        anew = place.launch(patch, "empty of processes", in_process=False)
    assert second == anew and not anew.is_loaded
    check_effect(edit, unedited, anew)


@pytest.mark.slow
def test_a_process_loads_what_another_compiled(place: Workplace, unedited: Launch) -> None:
    with pytest.MonkeyPatch.context() as patch:
        loaded = place.launch(patch, "warm", in_process=False)
    assert loaded == unedited and loaded.is_loaded


def check_effect(edit: Edit, unedited: Launch, edited: Launch) -> None:
    """The edit changes what it says: else a stale step would pass."""
    if edit.changes is Changes.NOTHING:
        assert edited == unedited
    elif edit.changes is Changes.ARTEFACT:
        assert edited.artefact != unedited.artefact
    else:
        assert edited.losses and edited.losses != unedited.losses


def test_the_edits_are_a_hundred_of_all_kinds() -> None:
    assert len(EDITS) >= 100 and len(set(map(str, EDITS))) == len(EDITS)
    assert {edit.kind for edit in EDITS} == KINDS
    counts = Counter(edit.changes for edit in EDITS)
    assert counts[Changes.LOSSES] > len(EDITS) // 2 and counts[Changes.NOTHING] >= 10
