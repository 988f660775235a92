"""The README's files and commands work as they stand, and its picture shows what the compiler prints."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import pytest
import readme

NOT_RUN = {
    "make setup": "this test runs in the environment that it makes",
    "make demo": "test/e2e/processes trains the same example on four processes",
    "make test": "this test is part of it",
    "make test-all": "this test is part of it",
    "shardc plan config.json --cluster h100-8x64": "test/unit/commands searches a small model's plan",
}
"""Commands in running text that are not run here, each with the reason."""
BIN = Path(sys.executable).parent

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("readme")
    for name, text in readme.files().items():
        (found / name).write_text(text)
    return found


@pytest.fixture(scope="module")
def printed(folder: Path) -> dict[str, str]:
    """What each command of the shell blocks printed, in their order."""
    return {command: readme.run(command, folder, BIN) for command in readme.commands()}


def test_it_is_short_and_no_python_block_is_left_out() -> None:
    assert len(readme.README.splitlines()) <= 90
    assert readme.README.count("```python") == len(readme.files()) == 2


@pytest.mark.slow
def test_each_command_does_what_the_readme_says(printed: dict[str, str]) -> None:
    compiled, checked, ran, explained = printed.values()
    assert "bytes on each device" in compiled and "collectives of a step" in compiled
    assert "equal to the single-device program" in checked
    assert len(re.findall(r"^step +\d+ +loss", ran, re.MULTILINE)) == 10
    assert re.search(r"2\.weight +\[64, 256\] +\[\*, tensor\] +follows 0.weight", explained)


@pytest.mark.slow
def test_the_script_trains_under_torchrun(folder: Path) -> None:
    [command] = re.findall(r"`(torchrun [^`]+)`", readme.README)
    losses = [float(loss) for loss in re.findall(r"tensor\(([\d.]+)", readme.run(command, folder, BIN))]
    assert len(losses) == 4 * 10 and min(losses[-4:]) < max(losses[:4])
    assert (folder / "checkpoint" / ".metadata").is_file()


def test_commands_in_running_text_are_run_or_have_a_reason() -> None:
    text = re.sub(r"^```.*?^```$", "", readme.README, flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`((?:make|pip|shardc|cmake) [^`]+)`", text))
    assert named == set(NOT_RUN)


@pytest.mark.slow
def test_the_picture_shows_what_the_compiler_prints(printed: dict[str, str], folder: Path) -> None:
    """Each level's lines, in their order: ``…`` is a few characters, ``%name`` any value."""
    picture = (readme.ROOT / "docs" / "levels.svg").read_text()
    lines: dict[str, list[str]] = {}
    for file, line in re.findall(r'class="ir" data-file="([^"]+)"[^>]*>([^<]*)<', picture):
        lines.setdefault(file, []).append(
            re.escape(html.unescape(line)).replace("…", ".{0,800}?").replace(r"\ ", r"\s*")
        )
    assert len(lines) == 5
    for file, patterns in lines.items():
        pattern = re.sub(r"%\w+", r"%\\w+", ".*?".join(patterns))
        text = re.sub(r" loc\([^)]*\)", "", (folder / "out" / file).read_text())
        assert re.search(pattern, text, re.DOTALL), f"{file}: {pattern}"
