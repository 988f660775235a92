"""Every error has a cause, an example that fails and one that works, or the reason why it has none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "docs"))

from error_pages import blocks, errors_by_page, sections

from shardc.diagnostics.catalogue import summary

from .run_example import run

PAGES = {page: sections(page) for page in errors_by_page()}
EXAMPLES = {s.name: s for found in PAGES.values() for s in found.values() if not s.reason}
PARALLEL = [s.name for s in EXAMPLES.values() if "torchrun" in s.fails or "--nproc" in s.fails]
"""Examples that start several processes."""
CASES = [pytest.param(n, marks=pytest.mark.processes) if n in PARALLEL else n for n in EXAMPLES]


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
@pytest.mark.parametrize("name", CASES)
def test_it_fails(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, text = run(EXAMPLES[name].fails, tmp_path, monkeypatch)
    assert name in said, f"said: {said} {text}"


@pytest.mark.sampled(1)
@pytest.mark.drawn(20)
@pytest.mark.parametrize("name", CASES)
def test_it_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, text = run(EXAMPLES[name].works, tmp_path, monkeypatch)
    assert not [found for found in said if found in EXAMPLES or found == "failed"], f"said: {said} {text}"
