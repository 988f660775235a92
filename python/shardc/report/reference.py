"""The reference of dialects and passes, written from their definitions:
``python -m shardc.report.reference docs/reference``.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist import Dist
from shardc.dialects.kern import Kern
from shardc.dialects.pipe import load
from shardc.driver.pipelines import PIPELINES
from shardc.passes.base import Pass
from shardc.passes.registry import PASSES, pass_class

WRITTEN = "Written by `make docs` from the definitions; not edited by hand."
DIALECTS: dict[str, type[ext.Dialect]] = {"dist": Dist, "kern": Kern, "pipe": load()}


def pages() -> dict[str, str]:
    """File name -> text of each page."""
    found = {f"{name}.md": dialect_page(dialect) for name, dialect in DIALECTS.items()}
    return {**found, "passes.md": passes_page()}


def dialect_page(dialect: type[ext.Dialect]) -> str:
    """Attributes and ops of a dialect, with their fields and what their docstrings say."""
    name = dialect.DIALECT_NAMESPACE
    lines = [f"# The `{name}` dialect", "", WRITTEN, "", *_text(dialect)]
    for attribute in sorted(dialect.attributes, key=lambda a: a.attr_name):
        lines += [f"## `#{attribute.attr_name}`", "", _file(attribute), "", *_text(attribute)]
        lines += _table(("parameter", "type"), _fields(attribute))
    for op in sorted(dialect.operations, key=lambda op: op.OPERATION_NAME):
        lines += [f"## `{op.OPERATION_NAME}`", "", _file(op), "", *_text(op)]
        lines += _table(("field", "is"), _fields(op))
    return "\n".join(lines).rstrip() + "\n"


def passes_page() -> str:
    """Named pipelines, then each pass with its options."""
    pipelines = [(f"`{name}`", f"`{text}`") for name, text in PIPELINES.items()]
    lines = ["# Passes", "", WRITTEN, "", "    shardc opt --pipeline 'dist-pad,dist-propagate' file.mlir", ""]
    lines += _table(("pipeline", "runs"), pipelines)
    for name in sorted(PASSES):
        class_ = pass_class(name)
        lines += [f"## `{name}`", "", _file(class_), "", *_text(class_)]
        lines += _table(("option", "type", "default"), _options(class_))
    return "\n".join(lines).rstrip() + "\n"


def _options(class_: type[Pass]) -> list[tuple[str, ...]]:
    return [(f"`{o.name}`", f"`{_type_name(o.type)}`", f"`{o.default!r}`") for o in class_.options()]


def _fields(class_: type) -> list[tuple[str, ...]]:
    """The fields of an op or attribute, in the order of their declaration."""
    return [(f"`{name}`", _kind(type_)) for name, type_ in inspect.get_annotations(class_).items()]


def _kind(type_: object) -> str:
    """What a field is: an operand, a result, a region, or the type of an attribute."""
    if typing.get_origin(type_) is typing.Union:
        [inner] = [t for t in typing.get_args(type_) if t is not type(None)]
        return f"{_kind(inner)}, optional"
    origin = typing.get_origin(type_) or type_
    kinds = {ir.OpResult: "result", ir.Value: "operand", ir.Region: "region", typing.Any: "attribute"}
    return kinds.get(origin) or f"`{_type_name(type_)}`"


def _type_name(type_: object) -> str:
    return type_.__name__ if isinstance(type_, type) and not typing.get_args(type_) else str(type_)


def _file(class_: type) -> str:
    """Where it is defined, as the README's map has it."""
    return f"`{class_.__module__.removeprefix('shardc.').replace('.', '/')}.py`"


def _text(class_: type) -> Iterator[str]:
    """The docstring as Markdown; a paragraph that is all code becomes a block of it."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(class_.__doc__ or "")):
        code = re.fullmatch(r"``(.*)``", paragraph, re.DOTALL)
        if code and "``" not in code[1]:
            yield from ("```mlir", code[1], "```", "")
        else:
            yield from (re.sub(r":\w+:`([^`]+)`", r"`\1`", paragraph).replace("``", "`"), "")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    return [*(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)), ""]


def main(folder: Path) -> None:
    """Writes all pages into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
