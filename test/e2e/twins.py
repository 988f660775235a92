"""Scripts of ``examples/training`` and their plain PyTorch twins."""

from __future__ import annotations

import difflib
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "training"
SCRIPTS = sorted(path.stem.removesuffix("_plain") for path in FOLDER.glob("*_plain.py"))


def difference(script: str) -> str:
    """What ``diff -u0`` shows between a script's plain twin and the script, without its line numbers."""
    names = [f"{script}_plain.py", f"{script}.py"]
    before, after = ((FOLDER / name).read_text().splitlines() for name in names)
    lines = difflib.unified_diff(before, after, *names, lineterm="", n=0)
    return "\n".join("@@" if line.startswith("@@") else line for line in lines)


def changed(script: str) -> list[str]:
    """The lines of a script that its twin does not have: those added and those changed."""
    return [line for line in difference(script).splitlines()[2:] if line.startswith("+")]
