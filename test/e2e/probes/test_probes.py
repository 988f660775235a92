"""Odd input to each argument, option and file is taken, or refused in words by an error of ours."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from api_probes import api_probes
from command_probes import command_probes
from file_probes import file_probes, written
from probe import Probe

FAMILIES: dict[str, tuple[Callable[[Path], Iterator[Probe]], int]] = {
    "api": (api_probes, 900),
    "commands": (command_probes, 600),
    "files": (file_probes, 350),
}
"""Family -> its probes, and how many there are at least."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that has every file which the commands read; ranks are not started."""
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "tuning.db"))
    monkeypatch.setattr("shardc.commands.run._launch", lambda arguments: None)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    written(tmp_path)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.mark.sampled(1)
@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_probes(family: str, every: int, folder: Path) -> None:
    make, least = FAMILIES[family]
    probes = list(make(folder))
    assert len(probes) >= least
    found = {probe.name: probe.problem() for probe in probes[::every]}
    assert os.listdir(folder)  # nothing removed what was there
    assert not {name: problem for name, problem in found.items() if problem}
