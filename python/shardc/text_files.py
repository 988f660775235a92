"""Reads and writes text files that a user names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shardc.diagnostics.cli import UnreadableInput, UnwritableOutput


@contextmanager
def reading(file: Path | str) -> Iterator[None]:
    """Raise UnreadableInput if the block cannot read ``file`` as UTF-8 text."""
    try:
        yield
    except OSError as error:
        raise UnreadableInput(file=file, problem=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise UnreadableInput(file=file, problem="it is not UTF-8 text") from error
    except ValueError as error:
        raise UnreadableInput(file=repr(file), problem=f"it is not a path ({error})") from error


def read_text(path: Path) -> str:
    """Return the text of a file. Raises UnreadableInput."""
    with reading(path):
        return path.read_text(encoding="utf-8")


def write_text(path: Path, text: str) -> None:
    """Write a text file. Raises UnwritableOutput."""
    with writing(path):
        path.write_text(text, encoding="utf-8")


def check_writable(*paths: Path | None) -> None:
    """Check before the work that its output files can be written. None stands for no file.

    Raises UnwritableOutput, also if two paths are equal.
    """
    given = [path.absolute() for path in paths if path is not None]
    for number, path in enumerate(given):
        with writing(path):
            problem = "another output goes there" if path in given[:number] else _problem(path)
        if problem:
            raise UnwritableOutput(file=path, problem=problem)


def _problem(path: Path) -> str:
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return f"{path.parent} is not a folder"
    can_be_written = os.access(path if path.exists() else path.parent, os.W_OK)
    return "" if can_be_written else "it may not be written to"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise UnwritableOutput if the block cannot write ``path``."""
    try:
        yield
    except OSError as error:
        raise UnwritableOutput(file=path, problem=error.strerror or str(error)) from error
    except ValueError as error:
        raise UnwritableOutput(file=repr(path), problem=f"it is not a path ({error})") from error
