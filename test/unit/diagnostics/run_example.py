"""Runner of the examples of ``docs/errors``: their errors, warnings and output."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "docs"))

from error_pages import FILES, PREAMBLE, SCRIPT, blocks

from shardc.cli import main
from shardc.diagnostics.base import ShardcError
from shardc.runtime.errors import RuntimeFailure

SAID = re.compile(r"^ *(?:\w+: )?\[(\w+)\]|^(\w+):", re.MULTILINE)
PRINTED = re.compile(r"\b(?:([A-Z]\w+): \1:|\w+Warning: \[(\w+)\]) ")
"""Id of an error at the end of a traceback, or of a warning with its place, in a process's output."""
PROGRAMS = {
    "python": [sys.executable],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone"],
}
"""Programs of commands that need a process of their own, or several."""
LIMIT_S = 300
"""Longest time of such a command."""


def run(markdown: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], str]:
    """Run the blocks in order; the ids of what was raised, warned of and remarked, and all texts."""
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(SCRIPT)
    names: dict[str, object] = {"__name__": "example"}
    exec(PREAMBLE, names)
    before, texts, raised = {**os.environ}, [], []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for language, code in blocks(markdown):
                ids, text = _run_block(language, code, names)
                raised += ids
                texts.append(text)
    finally:
        os.environ.clear()
        os.environ.update(before)
    texts += [str(warning.message) for warning in caught]
    found = [bracketed or plain for text in texts for bracketed, plain in SAID.findall(text)]
    return [*raised, *found], "\n".join(texts)


def _run_block(language: str, code: str, names: dict[str, object]) -> tuple[list[str], str]:
    """What a block ends in, and what it prints."""
    if language == "text":
        return [], ""
    if language in FILES:
        Path(FILES[language]).write_text(code)
        return [], ""
    if language == "sh":
        ended = [_command(line) for line in code.splitlines()]
        return [id_ for ids, _ in ended for id_ in ids], "\n".join(text for _, text in ended)
    Path("example.py").write_text(code)
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            exec(compile(code, "example.py", "exec"), names)
    except (ShardcError, RuntimeFailure) as error:
        return [type(error).__name__], printed.getvalue()
    return [], printed.getvalue()


def _command(line: str) -> tuple[list[str], str]:
    """Run ``VARIABLE=value shardc ...`` in this process; ``python`` and ``torchrun`` in their own."""
    words = shlex.split(line)
    first = next(i for i, word in enumerate(words) if word in {"shardc", *PROGRAMS})
    variables = dict(word.split("=", 1) for word in words[:first])
    if words[first] == "shardc":
        return _shardc(words[first + 1 :], variables)
    ended = subprocess.run(
        [*PROGRAMS[words[first]], *words[first + 1 :]],
        env={"OMP_NUM_THREADS": "1"} | os.environ | variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    text = ended.stdout + ended.stderr
    found = [next(filter(None, groups)) for groups in PRINTED.findall(text)]
    return [*found, *(["failed"] if ended.returncode else [])], text


def _shardc(arguments: list[str], variables: dict[str, str]) -> tuple[list[str], str]:
    """Run a command of shardc in this process."""
    before = {**os.environ}
    os.environ.update(variables)
    errors = io.StringIO()
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(errors):
            code = main(arguments)
    finally:
        os.environ.clear()
        os.environ.update(before)
    return (["failed"] if code else []), errors.getvalue()
