"""MLIR's diagnostics with source positions for users: file, line, column, and the line with a caret."""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

from shardc.diagnostics.cli import MalformedMlir
from shardc.dialects.dist.discardable import first_problem
from shardc.dialects.location import Place, place_of

UNNAMED_SOURCE = "-"
"""MLIR's file name for a source that was given as text."""

SNIPPET_WIDTH = 100
"""Number of characters of a line that a message shows."""


@dataclass(frozen=True)
class Source:
    """The MLIR text of a module, and the file name that messages show for it."""

    name: str = "the module"
    text: str = ""

    def where(self, place: Place) -> str:
        """Return ``file:line:column``, with the user's name of the source."""
        return f"{self.name if place.file == UNNAMED_SOURCE else place.file}:{place.line}:{place.column}"

    def snippet(self, place: Place) -> str:
        """Return the line with a caret under the column, for a message; empty for a position in another
        file.
        """
        lines = self.text.split("\n")
        if place.file != UNNAMED_SOURCE or not self.text or not 1 <= place.line <= len(lines):
            return ""
        line, caret = _clipped(lines[place.line - 1].expandtabs(1), place.column - 1)
        return f"\n    {line}\n    {' ' * caret}^"

    def describe(self, error: ir.MLIRError) -> dict[str, str]:
        """Return the fields ``message``, ``snippet`` and ``where`` of an error, from MLIR's first
        diagnostic.
        """
        diagnostics = error.error_diagnostics
        if not diagnostics:
            return self.fields(str(error), None)
        more = f" (and {len(diagnostics) - 1} more)" if len(diagnostics) > 1 else ""
        return self.fields(diagnostics[0].message.strip() + more, diagnostics[0].location)

    def fields(self, message: str, location: ir.Location | None) -> dict[str, str]:
        """Return the fields ``message``, ``snippet`` and ``where`` of an error at a location."""
        place = None if location is None else place_of(location)
        if place is None:
            return {"message": message, "snippet": "", "where": self.name}
        return {"message": message, "snippet": self.snippet(place), "where": self.where(place)}


def _clipped(line: str, column: int) -> tuple[str, int]:
    """Clip a line, which may have 100,000 characters, around a column. Return the part and the column in
    it.
    """
    if len(line) <= SNIPPET_WIDTH:
        return line, column
    start = max(0, min(column - SNIPPET_WIDTH // 2, len(line) - SNIPPET_WIDTH))
    end = start + SNIPPET_WIDTH
    before, after = "..." if start else "", "..." if end < len(line) else ""
    return f"{before}{line[start:end]}{after}", column - start + len(before)


UNKNOWN_SOURCE = Source()
"""Source of modules that were built, not parsed."""


def parse_module(source: Source, context: ir.Context) -> ir.Module:
    """Parse a module. Raises MalformedMlir with line and column."""
    try:
        module = ir.Module.parse(source.text, context)
    except ir.MLIRError as error:
        raise MalformedMlir(**source.describe(error)) from error
    problem = first_problem(module)
    if problem is not None:
        raise MalformedMlir(**source.fields(*problem))
    return module
