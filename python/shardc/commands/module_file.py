"""Reads MLIR files that a user names."""

from __future__ import annotations

from pathlib import Path

from torch_mlir import ir

from shardc.dialects.context import new_context
from shardc.passes.manager.mlir_errors import Source, parse_module
from shardc.text_files import read_text


def read_module(path: Path) -> ir.Module:
    """Parse the module in a file, in a new context. Raises UnreadableInput, MalformedMlir."""
    return parse(read_text(path), path)


def parse(text: str, path: Path) -> ir.Module:
    """Parse a text that was read from ``path``, in a new context. Raises MalformedMlir."""
    return parse_module(Source(str(path), text), new_context())
