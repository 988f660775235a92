"""From MLIR's diagnostics to places a user can look at: file, line, column, and the line with a caret."""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

from shardc.diagnostics.cli import MalformedMlir
from shardc.dialects.dist.discardable import first_problem
from shardc.dialects.location import Place, place_of

UNNAMED_SOURCE = "-"
"""What MLIR calls a source that it was given as text."""

SNIPPET_WIDTH = 100
"""How many letters of a line a message shows."""


@dataclass(frozen=True)
class Source:
    """The MLIR text that a module was parsed from, and the name that the user knows it by."""

    name: str = "the module"
    text: str = ""

    def where(self, place: Place) -> str:
        """``file:line:column``, with MLIR's name for our input replaced by the user's."""
        return f"{self.name if place.file == UNNAMED_SOURCE else place.file}:{place.line}:{place.column}"

    def snippet(self, place: Place) -> str:
        """The line with a caret under the column, to append to a message; empty if it is another file's."""
        lines = self.text.split("\n")
        if place.file != UNNAMED_SOURCE or not self.text or not 1 <= place.line <= len(lines):
            return ""
        line, caret = _clipped(lines[place.line - 1].expandtabs(1), place.column - 1)
        return f"\n    {line}\n    {' ' * caret}^"

    def describe(self, error: ir.MLIRError) -> dict[str, str]:
        """The fields ``message``, ``snippet`` and ``where`` of an error, from the first thing MLIR says."""
        diagnostics = error.error_diagnostics
        if not diagnostics:
            return {"message": str(error), "snippet": "", "where": self.name}
        more = f" (and {len(diagnostics) - 1} more)" if len(diagnostics) > 1 else ""
        place = place_of(diagnostics[0].location)
        return {
            "message": diagnostics[0].message.strip() + more,
            "snippet": self.snippet(place) if place else "",
            "where": self.where(place) if place else self.name,
        }


def _clipped(line: str, column: int) -> tuple[str, int]:
    """The part of a line around a column, and where the column is in it:
    a function's line may be of 100,000 letters.
    """
    if len(line) <= SNIPPET_WIDTH:
        return line, column
    start = max(0, min(column - SNIPPET_WIDTH // 2, len(line) - SNIPPET_WIDTH))
    end = start + SNIPPET_WIDTH
    before, after = "..." if start else "", "..." if end < len(line) else ""
    return f"{before}{line[start:end]}{after}", column - start + len(before)


UNKNOWN_SOURCE = Source()
"""For modules that were built and not parsed."""


def parse_module(source: Source, context: ir.Context) -> ir.Module:
    """The module that a text stands for. Raises MalformedMlir with line and column."""
    try:
        module = ir.Module.parse(source.text, context)
    except ir.MLIRError as error:
        raise MalformedMlir(**source.describe(error)) from error
    problem = first_problem(module)
    if problem is not None:
        message, location = problem
        place = place_of(location)
        snippet, where = (source.snippet(place), source.where(place)) if place else ("", source.name)
        raise MalformedMlir(message=message, snippet=snippet, where=where)
    return module
