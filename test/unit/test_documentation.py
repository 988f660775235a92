"""The pages that people read first: short claims, lines that fit, paths and links that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ["docs/status.md", "docs/limitations.md", "docs/roadmap.md", "docs/lessons.md"]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *CLAIMS]
WORDS = 40
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
CELL = re.compile(r"^```\{code-cell\}.*?^```$", re.MULTILINE | re.DOTALL)
SVG_TAG = re.compile(r"<svg [^>]*>")
MADE_BY_A_USER = {"train.py", "loop.py", "out/", "kernels.so", "checkpoint"}


@pytest.mark.parametrize("page", CLAIMS)
def test_a_bullet_is_one_claim(page: str) -> None:
    bullets = re.findall(r"^- (.*(?:\n  .*)*)", (ROOT / page).read_text(), re.MULTILINE)
    assert bullets
    assert not [bullet for bullet in bullets if len(bullet.split()) > WORDS]


@pytest.mark.parametrize("page", PAGES)
def test_lines_fit(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    assert not [line for line in lines if len(line) > 110 and not line.startswith("|")]


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_exist(page: str) -> None:
    """Links are relative to the page, paths in backticks to the root; ``<name>`` in a path is any name."""
    text = _prose(ROOT / page)
    assert not _broken_links(ROOT / page)
    paths = re.findall(r"`([\w.<>/-]+/[\w.<>/-]*|[\w.-]+\.(?:py|md|mlir))`", text)
    anything = {path: re.sub(r"<[\w-]+>", "*", path).rstrip("/") for path in paths}
    assert not [p for p, found in anything.items() if p not in MADE_BY_A_USER and not [*ROOT.glob(found)]]


def test_links_of_all_pages_exist() -> None:
    """As the book's builder, which takes minutes. ``docs/errors`` is text of other pages."""
    docs = ROOT / "docs"
    pages = [page for page in docs.rglob("*.md") if docs / "errors" not in page.parents]
    assert pages
    broken = {page: links for page in pages if (links := _broken_links(page))}
    assert not broken


def test_pictures_have_a_text_in_their_place() -> None:
    """Those of Markdown, those that cells of pages draw, and the files that pages show."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        text = page.read_text()
        assert not [file for words, file in PICTURE.findall(text) if len(words.split()) < 3], page
        cells = [cell for cell in CELL.findall(text) if "\nSVG(" in cell]
        assert not [cell for cell in cells if "\n    alt: " not in cell or "viewBox" not in cell], page
    files = sorted((ROOT / "docs").rglob("*.svg"))
    assert files
    for file in files:
        head = SVG_TAG.search(file.read_text())
        assert head and all(word in head[0] for word in ("viewBox=", 'role="img"', 'aria-label="')), file


def test_the_map_has_every_folder() -> None:
    rows = set(re.findall(r"^\| `([\w/]+)/` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    tops = [ROOT / name for name in ("dialects", "passes", "backends", "python/shardc")]
    folders = {p.relative_to(ROOT).as_posix() for top in tops for p in top.iterdir() if _is_package(p)}
    assert rows == folders


def test_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    [targets] = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert set(targets.split()) == set(re.findall(r"^([a-z-]+):.*## \w", makefile, re.MULTILINE))


def _is_package(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and (path / "__init__.py").is_file()


def _prose(page: Path) -> str:
    """A page's text without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def _broken_links(page: Path) -> list[str]:
    """Targets of links, other than of the web, that are not there."""
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", _prose(page))
    return [link for link in links if "://" not in link and not (page.parent / link).exists()]
