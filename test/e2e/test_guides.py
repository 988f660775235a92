"""The guides' scripts and commands work as they stand."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import readme

BIN = Path(sys.executable).parent
pytestmark = [pytest.mark.processes, pytest.mark.slow]


def guide(name: str) -> tuple[dict[str, str], list[str]]:
    """The scripts of a guide by name, and the commands of its shell blocks."""
    text = (readme.ROOT / "docs" / "guide" / name).read_text()
    return readme.files(text), readme.commands(text)


def test_data(tmp_path: Path) -> None:
    files, [command] = guide("data.md")
    for name, script in files.items():
        (tmp_path / name).write_text(script)
    steps, loss = readme.run(command, tmp_path, BIN).split()
    assert steps == "8" and 0 < float(loss) < 1


def test_checkpoints(tmp_path: Path) -> None:
    files, commands = guide("checkpoints.md")
    for name, script in files.items():
        (tmp_path / name).write_text(script)
    whole, resumed = (
        [dict(re.findall(r"^(\d) ([\d.e-]+)$", readme.run(command, tmp_path, BIN), re.MULTILINE))]
        for command in commands
    )
    assert [sorted(found) for found in (*whole, *resumed)] == [list("0123456789"), list("56789")]
    for number, loss in resumed[0].items():
        assert float(loss) == pytest.approx(float(whole[0][number]), rel=1e-5), number
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000005"]
