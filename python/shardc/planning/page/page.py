"""HTML text of the page: data, style and scripts in one file that loads nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

from shardc.planning.page.data import page_json
from shardc.planning.price import Price
from shardc.planning.question import Question
from shardc.runtime.check import Json

PARTS = {
    "style": "page.css",
    "script": "page.js",
    "chart_style": "vendor/uplot/uPlot.min.css",
    "chart_script": "vendor/uplot/uPlot.iife.min.js",
}
"""Slot of the template -> file that is inserted unchanged."""
_SLOT = re.compile(r"\{\{(\w+)\}\}")


def page(question: Question, prices: Sequence[Price], more: Mapping[str, object] | None = None) -> str:
    """Return the HTML page for the best of ``prices``, with the others for comparison.

    ``more``: further results of a search, such as its front, by their names in the JSON.
    """
    return assembled(page_json(question, prices) | dict(more or {}), f"{question.name}: shardc plan")


def assembled(data: Json, title: str) -> str:
    """Return the page for ``data``. The user's text is escaped: it cannot end the script around it."""
    folder = files("shardc.planning.page")
    parts = {slot: folder.joinpath(name).read_text(encoding="utf-8") for slot, name in PARTS.items()}
    parts |= {"title": escape(title), "data": json_in_html(data)}
    template = folder.joinpath("template.html").read_text(encoding="utf-8")
    return _SLOT.sub(lambda slot: parts[slot[1]], template)


def json_in_html(data: Json) -> str:
    """Return JSON with HTML's special characters escaped."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
