"""The reference in ``docs/reference`` agrees with the definitions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "docs"))

from error_pages import MESSAGES, errors_by_page
from write_reference import DIALECTS, pages

from shardc.passes.manager.registry import PASSES

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


PAGES = [
    *(f"{dialect}.md" for dialect in DIALECTS),
    "cli.md",
    "options.md",
    "passes.md",
    "environment.md",
    "messages.md",
    "cluster.schema.json",
    *(f"errors/{page}.md" for page in (*errors_by_page(), *MESSAGES)),
]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text() == pages()[name], "definitions have changed since: run `make docs`"


def test_every_pass_and_op_has_a_text() -> None:
    for name, text in pages().items():
        for section in [] if name.startswith(("errors/", "cli")) else text.split("\n## ")[1:]:
            title, _, file, _, first, *_ = section.split("\n")
            assert file.endswith(".py`") and first and not first.startswith("|"), f"{title} has no docstring"


def test_fields_say_what_they_are() -> None:
    text = pages()["dist.md"].partition("## `dist.loop`")[2].partition("\n## ")[0]
    assert "| `body` | region |" in text and "| `inits` | operand, optional |" in text
    assert "| `carried` | result, optional |" in text and "| `stack_dims` | `ArrayAttr` |" in text
    assert all(f"## `{name}`" in pages()["passes.md"] for name in PASSES)
