"""The book builds without a warning: its links lead somewhere, its code runs, its pages need no network and
fit their windows.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from chromium import MISSING, PROGRAM, Chromium, Tab, chromium

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


def test_each_page_with_code_cells_was_executed(book: Path) -> None:
    """MyST-NB's record of each page says so, whether its cells ran now or in the build that the cache has."""
    records = pickle.loads((book.parent / "trees" / "environment.pickle").read_bytes()).nb_metadata
    pages = {
        p.relative_to(DOCS).with_suffix("") for p in DOCS.rglob("*.md") if "\n```{code-cell}" in p.read_text()
    }
    ran = {Path(name) for name, record in records.items() if record.get("exec_data", {}).get("succeeded")}
    assert pages and pages <= ran


def test_tutorials_show_what_they_printed(book: Path) -> None:
    text = (book / "tutorials" / "01_a_net_cut_by_hand.html").read_text()
    assert "equal to the single-device program" in text
    assert "follows 0.weight" in text


PICTURE = r'<img [^>]*src="\.\./_images/[0-9a-f]+\.svg"'


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("gallery", r'<svg [^>]*aria-label="[^"]*: 1f1b and zb-v"'),
        ("gallery", r'<svg [^>]*aria-label="[^"]*: simulated and measured"'),
        ("gallery", r'<svg [^>]*aria-label="rank 0 \(predicted\): [\d.]+ ms"'),
        ("gallery", r'<svg [^>]*aria-label="[^"]*best so far after each trial"'),
        ("gallery", r'<iframe [^>]*srcdoc="&lt;!doctype html'),
        ("gallery", r"kernels: name, bytes read and written[\s\S]*@triton\.jit"),
        ("guide/performance", r"zero3 {11}\{'data': 16\}"),
        ("guide/wrong_number", r"6 aten\.sub\.Tensor[^\n]*NOT equal"),
        ("tutorials/04_time_as_an_axis", PICTURE),
        (
            "tutorials/05_pipelines_as_pictures",
            r"<svg [^>]*>[\s\S]*interleaved: bubble[\s\S]*zb-v: bubble rate",
        ),
        ("tutorials/06_long_sequences", PICTURE),
        ("tutorials/07_experts", PICTURE),
        ("tutorials/08_plan_405b", r"plan zero3\*sequence on data 64 x tensor 8[\s\S]*MFU \d"),
        ("tutorials/11_write_a_schedule", r"<svg [^>]*>[\s\S]*eager-1f1b: bubble rate"),
    ],
)
def test_pages_show_what_they_ran(book: Path, page: str, shown: str) -> None:
    assert re.search(shown, (book / f"{page}.html").read_text())


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as started:
        yield started


NOT_SHOWN = (
    "[...document.images].filter(i => !i.complete || !i.naturalWidth || !i.alt"
    " || i.alt.includes('_images')).map(i => i.src)"
)
EMPTY = (
    "[...document.querySelectorAll('article svg')].filter(s => !s.childElementCount"
    " || !s.getBoundingClientRect().width).map(s => s.outerHTML.slice(0, 200))"
)


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
@pytest.mark.parametrize("width", (390, 1280))
@pytest.mark.parametrize(
    "page",
    (
        "index",
        "tutorials/05_pipelines_as_pictures",
        "tutorials/06_long_sequences",
        "concepts/partial",
        "reference/errors/sharding",
        "reference/api",
        "gallery",
    ),
)
def test_pages_fit_the_window(browser: Chromium, book: Path, page: str, width: int) -> None:
    """Wide tables, code and pictures scroll by themselves; pictures load, and have a text beside them."""
    tab = Tab(browser, book / f"{page}.html", width, dark=False)
    assert tab.value("document.documentElement.scrollWidth") == width
    assert tab.value(NOT_SHOWN) == []
    assert tab.value(EMPTY) == []


def test_pictures_have_a_text_in_their_place(book: Path) -> None:
    tags = [
        tag
        for page in book.rglob("*.html")
        for tag in re.findall(r"<img [^>]*>|<svg [^>]*>", page.read_text())
    ]
    drawn = [tag for tag in tags if "xmlns" in tag and "timeline" in tag.lower()]
    assert drawn and not [tag for tag in drawn if 'role="img"' not in tag or "viewBox" not in tag]
    assert not [tag for tag in tags if tag.startswith("<img") and not re.search(r' alt="[^"]* [^"]* ', tag)]
