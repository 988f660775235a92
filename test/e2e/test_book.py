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
