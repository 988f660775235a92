"""Reads MLIR files that a user names."""

from __future__ import annotations

from pathlib import Path

from torch_mlir import ir

from shardc.diagnostics.cli import UnreadableInput
from shardc.dialects.context import new_context
from shardc.passes.manager.mlir_errors import Source, parse_module


def read_module(path: Path) -> ir.Module:
    """The module in a file, in a context of its own. Raises UnreadableInput, MalformedMlir."""
    return parse_module(Source(str(path), read_text(path)), new_context())


def read_text(path: Path) -> str:
    """Raises UnreadableInput."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UnreadableInput(file=path, problem=problem) from error
