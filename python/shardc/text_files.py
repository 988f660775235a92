"""Reads and writes text files that a user names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardc.diagnostics.cli import UnreadableInput, UnwritableOutput


@contextmanager
def reading(file: Path | str) -> Iterator[None]:
    """Raises UnreadableInput where the block cannot read ``file``, or as UTF-8."""
    try:
        yield
    except OSError as error:
        raise UnreadableInput(file=file, problem=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise UnreadableInput(file=file, problem="it is not UTF-8 text") from error


def read_text(path: Path) -> str:
    """The text of a file. Raises UnreadableInput."""
    with reading(path):
        return path.read_text(encoding="utf-8")


def write_text(path: Path, text: str) -> None:
    """Raises UnwritableOutput."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnwritableOutput(file=path, problem=error.strerror or str(error)) from error
