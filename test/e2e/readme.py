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
    """The lines of the shell blocks, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines() if line]


def run(command: str, folder: Path, bin_folder: Path) -> str:
    """Run a command in ``folder`` as a user whose path starts with ``bin_folder``; return what it printed.

    Fails the test where the exit code is not 0.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment["PATH"] = f"{bin_folder}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
