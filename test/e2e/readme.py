"""The README's code blocks, and a way to run them with the ``shardc`` of any environment."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def files(text: str = README) -> dict[str, str]:
    """The Python blocks, by the file name that each names in its first line."""
    return dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def commands(text: str = README) -> list[str]:
    """The commands of the shell blocks, without comments; a backslash joins a line and the next."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text.replace("\\\n", ""), re.MULTILINE | re.DOTALL)
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines() if line]


def answers(text: str) -> dict[str, list[str]]:
    """The last command of each shell block, with the lines of the text block behind it, if there is one."""
    found = re.findall(r"^```sh\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return {commands(f"```sh\n{shell}```\n")[-1]: answer.splitlines() for shell, answer in found}


def like(lines: list[str]) -> str:
    """A pattern of lines that may stand apart: ``…`` is anything, and spaces are any number of them."""
    parts = [r"\s+".join(map(re.escape, line.split())).replace("…", ".*?") for line in lines]
    return r"[\s\S]*?".join(parts)


def run(command: str, folder: Path, bin_folder: Path) -> str:
    """Run a command in ``folder`` as a user whose path starts with ``bin_folder``; return what it printed.

    Fails the test where the exit code is not 0.
    """
    done = call(command, folder, bin_folder)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def call(command: str, folder: Path, bin_folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as :func:`run` does, whatever its exit code is."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["PATH"] = f"{bin_folder}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
