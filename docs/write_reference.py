"""Writer of the reference of dialects, passes, commands, messages and environment variables.

It reads their definitions: ``python docs/write_reference.py docs/reference``.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

from cli_page import cli_lines
from error_pages import MESSAGES, error_pages, page_of
from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc import environment
from shardc.cost.cluster.schema import cluster_schema
from shardc.diagnostics import catalogue
from shardc.diagnostics.catalogue import REMARKS, WARNED_ERRORS, WARNINGS, errors_by_id, summary
from shardc.dialects.dist import Dist
from shardc.dialects.kern import Kern
from shardc.dialects.pipe import load
from shardc.options.field import Option, flag, options_of
from shardc.options.given import GROUPS
from shardc.passes.manager.pass_pipelines import PIPELINES
from shardc.passes.manager.registry import PASSES, pass_class
from shardc.runtime import environment as runtime_environment

WRITTEN = "Written by `make docs` from the definitions; not edited by hand."
INTRODUCTION = """\
`compile_step` takes all groups; `torch.compile(backend="shardc", options={...})` takes `kernels` and
`numerics`. A group is given as its dataclass, as a mapping of its fields, or by the names of its fields,
which come before those of a dataclass. On the command line a field is a flag:

    step = shardc.compile_step(model, optimizer, batch, mesh={"data": 2}, clip_grad_norm=1.0)
    step = shardc.compile_step(model, optimizer, batch, mesh={"data": 2}, numerics=shardc.Numerics(1.0))
    shardc compile train.py --mesh data=2 --clip-grad-norm 1.0 -o out/
"""
INTRODUCTION_OF_MESSAGES = """\
The id of a remark or a warning stands in brackets before its text, the id of an error before a colon. Ids do
not change between versions. `SHARDC_SILENCE=ID,ID` silences remarks and warnings. Some errors are issued as
warnings if the program can continue without the part that failed; only the warning is silenced. An id links
to its cause, an example that raises it, and one that does not. In Python:

    warnings.filterwarnings("ignore", message=r"\\[SchedulerNotSaved\\]")
    warnings.filterwarnings("ignore", category=shardc.ShardcWarning)
"""
TREE_OF_ERRORS = ["```{toctree}", ":hidden:", ":glob:", "", "errors/*", "```"]
ENVIRONMENT_OF_TESTS = "The variables of the test suite are in `CONTRIBUTING.md`."
DIALECTS: dict[str, type[ext.Dialect]] = {"dist": Dist, "kern": Kern, "pipe": load()}


@cache
def pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    found = {f"{name}.md": dialect_page(dialect) for name, dialect in DIALECTS.items()}
    found |= {"options.md": options_page(), "passes.md": passes_page()}
    found["cli.md"] = _page("Command line", cli_lines())
    found["cluster.schema.json"] = json.dumps(cluster_schema(), indent=1) + "\n"
    return {**found, **error_pages(), "environment.md": environment_page(), "messages.md": messages_page()}


def messages_page() -> str:
    """Return the page with the ids of all remarks, warnings and errors."""
    classes = errors_by_id()
    warnings = {**WARNINGS, **{name: summary(classes[name]) for name in WARNED_ERRORS}}
    errors = {name: summary(class_) for name, class_ in classes.items()}
    lines = [INTRODUCTION_OF_MESSAGES]
    sections = (
        ("Remarks", "Remarks, which a plan's report has at its end.", REMARKS),
        ("Warnings", "Warnings, after which a program continues.", warnings),
        ("Errors", "Errors, which end a call.", errors),
    )
    for title, says, texts in sections:
        told = {name: text.replace("``", "`").replace("|", "\\|") for name, text in sorted(texts.items())}
        rows = [(_linked(name, classes), text) for name, text in told.items()]
        lines += [f"## {title}", "", _file(catalogue), "", says, "", *_table(("id", "says"), rows)]
    return _page("Messages", [*lines, *TREE_OF_ERRORS])


def _linked(name: str, classes: Mapping[str, type]) -> str:
    """Return an id with a link to its examples, if it has a section."""
    for page, messages in MESSAGES.items():
        if name in messages:
            return f"[`{name}`](errors/{page}.md#{name.lower()})"
    if name not in classes or (classes[name].__doc__ or "").startswith("Base of"):
        return f"`{name}`"
    return f"[`{name}`](errors/{page_of(classes[name])}.md#{name.lower()})"


def environment_page() -> str:
    """Return the page of environment variables, those of the compiler first."""
    lines = [ENVIRONMENT_OF_TESTS, ""]
    runtime = _variables(runtime_environment)
    compiler = [v for v in _variables(environment) if v not in runtime]
    sections = ("The compiler", environment, compiler), ("A running step", runtime_environment, runtime)
    for title, module, found in sections:
        lines += [f"## {title}", "", _file(module), "", f"{title} reads or sets these.", ""]
        rows = [(f"`{v.name}`", v.kind, v.otherwise or f"`{v.default}`", v.effect) for v in found]
        lines += _table(("variable", "value", "default", "effect"), sorted(rows))
    return _page("Environment variables", lines)


def _page(title: str, lines: list[str]) -> str:
    return "\n".join([f"# {title}", "", WRITTEN, "", *lines]).rstrip() + "\n"


def _variables(module: ModuleType) -> list[runtime_environment.Variable[object]]:
    return [v for v in vars(module).values() if isinstance(v, runtime_environment.Variable)]


def dialect_page(dialect: type[ext.Dialect]) -> str:
    """Return the page of a dialect: attributes and ops, with their fields and docstrings."""
    lines = [*_text(dialect)]
    for attribute in sorted(dialect.attributes, key=lambda a: a.attr_name):
        lines += [f"## `#{attribute.attr_name}`", "", _file(attribute), "", *_text(attribute)]
        lines += _table(("parameter", "type"), _fields(attribute))
    for op in sorted(dialect.operations, key=lambda op: op.OPERATION_NAME):
        lines += [f"## `{op.OPERATION_NAME}`", "", _file(op), "", *_text(op)]
        lines += _table(("field", "is"), _fields(op))
    return _page(f"The `{dialect.DIALECT_NAMESPACE}` dialect", lines)


def passes_page() -> str:
    """Return the page of named pipelines, then of each pass with its options."""
    pipelines = [(f"`{name}`", f"`{text}`") for name, text in PIPELINES.items()]
    lines = ["    shardc opt --pipeline 'dist-pad,dist-propagate' file.mlir", ""]
    lines += _table(("pipeline", "runs"), pipelines)
    for name in sorted(PASSES):
        class_ = pass_class(name)
        lines += [f"## `{name}`", "", _file(class_), "", *_text(class_)]
        options = [(f"`{o.name}`", f"`{_type_name(o.type)}`", f"`{o.default!r}`") for o in class_.options()]
        lines += _table(("option", "type", "default"), options)
    return _page("Passes", lines)


def options_page() -> str:
    """Return the page of the groups of options, with the spelling of each option in every front end."""
    lines = [INTRODUCTION]
    for name, group in GROUPS.items():
        lines += [f"## `{name}`: `{group.__name__}`", "", _file(group), "", *_text(group)]
        options = options_of(group).values()
        lines += _table(("option", "flag", "values", "default"), [_row(option) for option in options])
        lines += [*(line for option in options for line in _item(option)), ""]
    return _page("Options", lines)


def _row(option: Option) -> tuple[str, ...]:
    default = "required" if option.is_required else f"`{option.default!r}`"
    has_flag = option.about.has_flag and option.about.only != "torch.compile"
    shown = f"`{flag(option.name)}`" if has_flag else ""
    return f"`{option.name}`", shown, option.expected.replace("|", "\\|"), default


def _item(option: Option) -> list[str]:
    """Return an option's description as a list item."""
    only = f" For `{option.about.only}` alone." if option.about.only else ""
    was = f" Formerly {', '.join(f'`{name}`' for name in option.old_names)}." if option.old_names else ""
    return textwrap.wrap(f"- `{option.name}`: {option.about.help}{only}{was}", 110, subsequent_indent="  ")


def _fields(class_: type) -> list[tuple[str, ...]]:
    """Return the fields of an op or attribute, in the order of their declaration."""
    return [(f"`{name}`", _kind(type_)) for name, type_ in inspect.get_annotations(class_).items()]


def _kind(type_: object) -> str:
    """Return the kind of a field: an operand, a result, a region, or the type of an attribute."""
    if type(None) in typing.get_args(type_):
        [inner] = [t for t in typing.get_args(type_) if t is not type(None)]
        return f"{_kind(inner)}, optional"
    origin = typing.get_origin(type_) or type_
    kinds = {ir.OpResult: "result", ir.Value: "operand", ir.Region: "region", typing.Any: "attribute"}
    return kinds.get(origin) or f"`{_type_name(type_)}`"


def _type_name(type_: object) -> str:
    if isinstance(type_, type) and not typing.get_args(type_):
        return type_.__name__
    return re.sub(r"(?:\w+\.)+(?=\w)", "", str(type_)).replace(" | ", " or ")


def _file(defined: type | ModuleType) -> str:
    """Return the file of a class or a module, in the form of CONTRIBUTING's map of the tree."""
    name = defined.__name__ if isinstance(defined, ModuleType) else defined.__module__
    return f"`{name.removeprefix('shardc.').replace('.', '/')}.py`"


def _text(class_: type) -> Iterator[str]:
    """Return a docstring as Markdown; a paragraph that is only code becomes a code block."""
    text, _, example = inspect.cleandoc(class_.__doc__ or "").partition("\n\nExample:\n")
    for paragraph in re.split(r"\n\s*\n", text):
        code = re.fullmatch(r"``(.*)``", paragraph, re.DOTALL)
        if code and "``" not in code[1]:
            yield from ("```mlir", code[1], "```", "")
        else:
            yield from (re.sub(r":\w+:`([^`]+)`", r"`\1`", paragraph).replace("``", "`"), "")
    if example:
        yield from ("```pycon", textwrap.dedent(example).rstrip(), "```", "")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    return [*(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)), ""]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
