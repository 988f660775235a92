"""The book builds without a warning: its links lead somewhere, its code runs, its pages need no network."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
LOADED = re.compile(r"<(?:script|img|iframe)[^>]* src=\"https?:|<link[^>]* rel=\"stylesheet\"[^>]*https?:")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("myst_nb") is None, reason="needs Sphinx: `make docs` installs requirements-docs.lock"
    ),
]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of pages, built anew; a warning fails the build."""
    folder = tmp_path_factory.mktemp("book")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    built = subprocess.run(
        [*command, "-d", str(folder / "trees"), str(DOCS), str(folder / "pages")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-3000:]
    return folder / "pages"


def test_pages_need_no_network(book: Path) -> None:
    pages = list(book.rglob("*.html"))
    assert {"index.html", "api.html", "install.html"} <= {page.name for page in pages}
    assert not [page.name for page in pages if LOADED.search(page.read_text())]


def test_tutorials_show_what_they_printed(book: Path) -> None:
    text = (book / "tutorials" / "01_a_net_cut_by_hand.html").read_text()
    assert "equal to the single-device program" in text
    assert "follows 0.weight" in text


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("04_time_as_an_axis", r'<img [^>]*src="\.\./_images/[0-9a-f]+\.svg"'),
        ("05_pipelines_as_pictures", r"<svg [^>]*>[\s\S]*interleaved: bubble rate[\s\S]*zb-v: bubble rate"),
        ("06_long_sequences", r'<img [^>]*src="\.\./_images/[0-9a-f]+\.svg"'),
        ("07_experts", r'<img [^>]*src="\.\./_images/[0-9a-f]+\.svg"'),
        ("11_write_a_schedule", r"<svg [^>]*>[\s\S]*eager-1f1b: bubble rate"),
    ],
)
def test_pictures_stand_in_their_pages(book: Path, page: str, shown: str) -> None:
    assert re.search(shown, (book / "tutorials" / f"{page}.html").read_text())
