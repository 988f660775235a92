"""Page of the command line: every command with its arguments, options and examples, from its help."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import typer

from shardc.cli.app import app

BEFORE = """\
`shardc COMMAND --help` prints the same. All commands take `--debug`, which shows the Python traceback of an
error.

| exit code | says |
| --- | --- |
| 0 | success |
| 1 | a check failed, or a rank |
| 2 | bad input |
| 3 | an error inside shardc |
| 130 | interrupted |
"""


def cli_lines() -> list[str]:
    """Return the lines of the page, with a section for each command and subcommand."""
    root = typer.main.get_command(app)
    context = root.make_context("shardc", ["doctor"])
    lines = [BEFORE]
    for name, command in sorted(_commands(root, "shardc")):
        lines += [f"## `{name}`", "", *_section(name, command, context)]
    return lines


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        full = f"{prefix} {name}"
        yield full, command
        if hasattr(command, "commands"):
            yield from _commands(command, full)


def _section(name: str, command: Any, context: Any) -> Iterator[str]:
    text, _, examples = cleandoc(command.help or "").partition("\b\n")
    yield from (textwrap.fill(" ".join(part.split()), 110) + "\n" for part in text.strip().split("\n\n"))
    if examples:
        code = cleandoc(examples.partition("\n")[2])
        yield from ("```sh", code, "```", "")
    records = [p.get_help_record(context) for p in command.params if not getattr(p, "hidden", False)]
    rows = [_row(*record) for record in records if record is not None]
    if rows:
        yield from ("| argument or option | what it does |", "| --- | --- |")
        yield from (f"| {left} | {right} |" for left, right in rows)
        yield ""


def _row(names: str, says: str) -> tuple[str, str]:
    said = re.sub(r"\s+", " ", says).replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")
    return f"`{names}`".replace("|", "\\|"), said
