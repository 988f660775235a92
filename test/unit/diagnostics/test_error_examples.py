"""Every error has a cause, an example that fails and one that works, or the reason why it has none."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "docs"))

from error_pages import FILES, PREAMBLE, SCRIPT, blocks, errors_by_page, sections

from shardc.cli import main
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.catalogue import summary
from shardc.runtime.errors import RuntimeFailure

PAGES = {page: sections(page) for page in errors_by_page()}
EXAMPLES = {s.name: s for found in PAGES.values() for s in found.values() if not s.reason}
SAID = re.compile(r"^(?:\w+: )?\[(\w+)\]|^(\w+):", re.MULTILINE)


@pytest.mark.parametrize("page", errors_by_page())
def test_every_error_has_a_cause_and_examples_or_a_reason(page: str) -> None:
    names = [class_.__name__ for class_ in errors_by_page()[page]]
    assert list(PAGES[page]) == names, f"docs/errors/{page}.md has other sections, or another order"
    for class_ in errors_by_page()[page]:
        assert summary(class_), f"{class_.__name__} has no docstring"
        section = PAGES[page][class_.__name__]
        assert section.reason or (blocks(section.fails) and blocks(section.works)), class_.__name__


@pytest.mark.sampled(2)
@pytest.mark.drawn(60)
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_fails(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = _run(EXAMPLES[name].fails, tmp_path, monkeypatch)
    assert name in said, f"said: {said}"


@pytest.mark.sampled(1)
@pytest.mark.drawn(20)
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = _run(EXAMPLES[name].works, tmp_path, monkeypatch)
    assert not [found for found in said if found in EXAMPLES or found == "failed"], f"said: {said}"


def _run(markdown: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run the blocks in order; the ids of what was raised and warned of."""
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(SCRIPT)
    said: list[str] = []
    names: dict[str, object] = {"__name__": "example"}
    exec(PREAMBLE, names)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for language, code in blocks(markdown):
            said += _run_block(language, code, names)
    return said + [name for warning in caught for name in _ids(str(warning.message))]


def _ids(text: str) -> list[str]:
    """Of errors, warnings and remarks in a text."""
    return [bracketed or plain for bracketed, plain in SAID.findall(text)]


def _run_block(language: str, code: str, names: dict[str, object]) -> list[str]:
    if language in FILES:
        Path(FILES[language]).write_text(code)
        return []
    if language == "sh":
        return [found for line in code.splitlines() for found in _command(line)]
    Path("example.py").write_text(code)
    try:
        with redirect_stdout(io.StringIO()):
            exec(compile(code, "example.py", "exec"), names)
    except (ShardcError, RuntimeFailure) as error:
        return [type(error).__name__]
    return []


def _command(line: str) -> list[str]:
    """Run ``VARIABLE=value shardc ...`` in this process."""
    words = shlex.split(line)
    first = words.index("shardc")
    before = {**os.environ}
    os.environ.update(word.split("=", 1) for word in words[:first])
    errors = io.StringIO()
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(errors):
            code = main(words[first + 1 :])
    finally:
        os.environ.clear()
        os.environ.update(before)
    found = _ids(errors.getvalue())
    return [*found, f"failed: {errors.getvalue()}"] if code else found
