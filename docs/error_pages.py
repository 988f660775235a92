"""Pages of messages: errors, remarks and warnings with cause, text, and examples with and without them.

Cause, text and advice of an error come from its class. Examples are in ``docs/errors``: a file for each
module of errors, one for remarks, and one for warnings. A section without examples gives the reason.
``test/unit/diagnostics/test_error_examples.py`` and ``test_message_examples.py`` run the examples.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc, getdoc
from pathlib import Path

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.catalogue import REMARKS, WARNINGS, errors_by_id
from shardc.runtime.errors import RuntimeFailure

SOURCES = Path(__file__).parent / "errors"
PREAMBLE = """\
import shardc
import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch = (torch.randn(8, 8), torch.randint(4, (8,)))
loss = nn.functional.cross_entropy
"""
"""First lines of Python examples."""
SCRIPT = f"""\
{PREAMBLE}

def build():
    return model, optimizer, batch, loss
"""
"""File ``train.py`` of examples of the command line."""
FILES = {
    "csv": "schedule.csv",
    "json": "file.json",
    "mlir": "file.mlir",
    "yaml": "cluster.yaml",
    "py": "script.py",
}
"""Name of the file that a code block becomes for later commands, by the block's language."""
BEGIN = f"""\
All examples in Python begin with these lines:

```python
{PREAMBLE}```

On the command line `train.py` is the same with `build()`, which returns model, optimizer, batch and loss.
`from train import *` gives a script the same names.
"""
BEFORE = f"""\
{BEGIN}Code blocks in other languages are files: {", ".join(f"`{name}`" for name in FILES.values())}.
A test runs each example. The first example of an error raises it, and the second raises no error.
"""
MESSAGES = {"remarks": REMARKS, "warnings": WARNINGS}
"""Messages of each page, with their meaning."""
ABOUT = {
    "remarks": "A remark says what a plan does that you may not expect. Results are right. "
    "`print(step.plan)` has a compile's remarks at its end; `step.plan.remarks` is the list of them.",
    "warnings": "A program warns and runs on. Warnings are of the category `shardc.ShardcWarning`. "
    "Errors that can be warnings have their examples on the pages of [errors](../messages.md).",
}
AFTER = f"""\
{BEGIN}A test runs each example: the first says what stands under it, where … is any text; the second does
not. `SHARDC_SILENCE=<id>` silences it.
"""
SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
WORKS, REASON = "\nWorks:\n", "No short example: "


@dataclass(frozen=True)
class Section:
    """Section of ``docs/errors`` on one message: examples in Markdown, or the reason why there are none."""

    name: str
    fails: str
    works: str
    reason: str


def sections(page: str) -> dict[str, Section]:
    """Return the sections of ``docs/errors/<page>.md`` by message; empty without such a file."""
    path = SOURCES / f"{page}.md"
    found: dict[str, Section] = {}
    for name, body in SECTION.findall(path.read_text() if path.is_file() else ""):
        fails, _, works = body.partition(WORKS)
        reason = fails.strip().removeprefix(REASON) if fails.strip().startswith(REASON) else ""
        found[name] = Section(name, "" if reason else fails.strip(), works.strip(), reason)
    return found


def blocks(markdown: str) -> list[tuple[str, str]]:
    """Return the language and the code of each block."""
    return BLOCK.findall(markdown + "\n")


def errors_by_page() -> dict[str, list[type[ShardcError] | type[RuntimeFailure]]]:
    """Return the errors of each page, in the order of their module; base classes are left out."""
    found: dict[str, list[type[ShardcError] | type[RuntimeFailure]]] = {}
    for class_ in errors_by_id().values():
        if not (class_.__doc__ or "").startswith("Base of"):
            found.setdefault(page_of(class_), []).append(class_)
    for classes in found.values():
        order = [*vars(import_module(classes[0].__module__))]
        classes.sort(key=lambda class_: order.index(class_.__name__))
    return found


def page_of(class_: type) -> str:
    """Return the page of an error, such as ``plan`` for an error of ``shardc.diagnostics.passes.plan``."""
    stem = class_.__module__.rpartition(".")[2]
    return "running" if stem == "errors" else stem


def error_pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    found = errors_by_page()
    errors = {f"errors/{page}.md": _page(page, classes) for page, classes in sorted(found.items())}
    return {**errors, **{f"errors/{page}.md": _message_page(page) for page in MESSAGES}}


def _message_page(page: str) -> str:
    """Return the page of remarks, or of warnings."""
    lines = [f"# {page.title()}", "", "Written by `make docs` from the definitions; not edited by hand.", ""]
    lines += [*textwrap.wrap(ABOUT[page], 110), "", AFTER]
    for name, section in sections(page).items():
        lines += [f"## {name}", "", *textwrap.wrap(MESSAGES[page][name].replace("``", "`"), 110), ""]
        if section.reason:
            lines += [*textwrap.wrap(f"No example stands here: {section.reason}", 110), ""]
        else:
            lines += [section.fails, "", "Without it:", "", section.works, ""]
    return "\n".join(lines).rstrip() + "\n"


def _page(page: str, classes: list[type[ShardcError] | type[RuntimeFailure]]) -> str:
    about = cleandoc(import_module(classes[0].__module__).__doc__ or "").partition("\n\n")[0]
    about = " ".join(about.split())
    title = re.split(r": |\. |\.$", about)[0]
    written = sections(page)
    lines = [f"# {title}", "", "Written by `make docs` from the definitions; not edited by hand.", ""]
    if about.rstrip(".") != title:
        lines += [*textwrap.wrap(about, 110), ""]
    lines.append(BEFORE)
    for class_ in classes:
        lines += [f"## {class_.__name__}", "", *_section(class_, written[class_.__name__])]
    return "\n".join(lines).rstrip() + "\n"


def _section(class_: type, section: Section) -> list[str]:
    lines = [*textwrap.wrap(_cause(class_, whole=bool(section.reason)), 110), ""]
    text = _text(class_)
    lines += ["```text", *text, "```", ""] if text else []
    if section.reason:
        return [*lines, *textwrap.wrap(f"No example stands here: {section.reason}", 110), ""]
    return [*lines, "Fails:", "", section.fails, "", "Works:", "", section.works, ""]


def _cause(class_: type, *, whole: bool) -> str:
    """Return the docstring; without its own examples if the page has others (``whole`` is False)."""
    text = " ".join((getdoc(class_) or "").split()) if whole else _first(class_)
    return text.replace("``", "`")


def _first(class_: type) -> str:
    text = " ".join((getdoc(class_) or "").partition("\n\n")[0].split())
    return re.split(r" ?(?:Fails|Works|Bad|Good|Falls back): ", text)[0]


def _text(class_: type) -> list[str]:
    """Return the lines of the message, with ``<names>`` for the parts that differ."""
    if not issubclass(class_, ShardcError):
        return []
    what = f"{class_.__name__}: {_filled(class_.template)}"
    lines = textwrap.wrap(what, 106, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    if class_.hint and class_.hint != "{hint}":
        lines += textwrap.wrap(
            f"try: {_filled(class_.hint)}",
            106,
            initial_indent="  ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _filled(template: str) -> str:
    marked = template.replace("{{", "\0").replace("}}", "\1")
    named = re.sub(r"\{(\w+)[^}]*\}", r"<\1>", marked)
    return named.replace("<nearest>", "").replace("<snippet>", "").replace("\0", "{").replace("\1", "}")
