"""Readability of reports and messages: source lines, tables, snippets of long lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardc.diagnostics.text import table
from shardc.dialects.location import Place
from shardc.passes.manager.mlir_errors import SNIPPET_WIDTH, Source
from shardc.report.source_lines import shown, shown_in


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (None, ""),
        (
            "/v/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py:370",
            "transformers/models/llama/modeling_llama.py:370",
        ),
        (f"{Path.cwd()}/train.py:3", "train.py:3"),
        ("/elsewhere/train.py:3", "/elsewhere/train.py:3"),
        ("optimizer:AdamW:0", "optimizer:AdamW"),
        ("no line", "no line"),
    ],
)
def test_source_lines(where: str | None, text: str) -> None:
    assert shown(where) == text


def test_a_source_line_in_a_sentence() -> None:
    assert shown_in("through mm at /v/site-packages/a/b.py:3") == "through mm at a/b.py:3"
    assert shown_in("nothing shards it") == "nothing shards it"


def test_columns_are_as_wide_as_they_must_be() -> None:
    assert table([("a", "1", "x"), ("long", "100", "")], right=(1,)) == ["  a       1  x", "  long  100"]


@pytest.mark.parametrize("column", [1, 60, 500, 1000])
def test_of_a_long_line_the_part_around_the_caret_is_shown(column: int) -> None:
    line = "".join(chr(ord("a") + i % 26) for i in range(1000))
    _, shown_line, caret = Source("f.mlir", line).snippet(Place("-", 1, column)).split("\n")
    assert len(shown_line) <= 4 + 3 + SNIPPET_WIDTH + 3
    assert shown_line[caret.index("^")] == line[column - 1]


def test_a_short_line_is_shown_whole() -> None:
    assert Source("f.mlir", "\tabc").snippet(Place("-", 1, 3)) == "\n     abc\n      ^"
