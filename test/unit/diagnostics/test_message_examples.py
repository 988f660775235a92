"""Every remark and warning has an example with it and one without, or a reason for none."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "docs"))

from error_pages import MESSAGES, blocks, sections

from .run_example import run

PAGES = {page: sections(page) for page in MESSAGES}
EXAMPLES = {s.name: s for found in PAGES.values() for s in found.values() if not s.reason}
WITHOUT_EXAMPLE = {
    "RoomCompiled": "several processes",
    "StepNotCaptured": "a GPU",
    "TuningIgnored": "an earlier shardc",
}
"""What it takes to see those that have no example."""


@pytest.mark.parametrize("page", MESSAGES)
def test_every_message_has_examples_or_is_an_exception(page: str) -> None:
    assert list(PAGES[page]) == sorted(MESSAGES[page]), f"docs/errors/{page}.md has other sections"
    for name, section in PAGES[page].items():
        if name in WITHOUT_EXAMPLE:
            assert WITHOUT_EXAMPLE[name] in " ".join(section.reason.split()), name
            continue
        languages = [language for language, _ in blocks(section.fails)]
        assert languages[-1:] == ["text"] and len(languages) > 1, f"{name} has no example with its text"
        assert blocks(section.works), f"{name} has no example without it"


def test_exceptions_are_messages() -> None:
    assert {*WITHOUT_EXAMPLE} <= {name for names in MESSAGES.values() for name in names}


@pytest.mark.sampled(4)
@pytest.mark.drawn(12)
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_said_as_shown(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, text = run(EXAMPLES[name].fails, tmp_path, monkeypatch)
    assert name in said, f"said: {said}"
    shown = " ".join(blocks(EXAMPLES[name].fails)[-1][1].split())
    assert shown.startswith(f"[{name}] ")
    wanted = ".*".join(map(re.escape, shown.split("…")))
    assert re.search(wanted, " ".join(text.split())), f"said: {text}"


@pytest.mark.sampled(1)
@pytest.mark.drawn(6)
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_not_said(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, text = run(EXAMPLES[name].works, tmp_path, monkeypatch)
    assert name not in said and "failed" not in said, f"said: {said} {text}"
