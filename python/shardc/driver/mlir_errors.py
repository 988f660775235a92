"""From MLIR's diagnostics to places a user can look at: file, line, column, and the line with a caret."""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

UNNAMED_SOURCE = "-"
"""What MLIR calls a source that it was given as text."""


@dataclass(frozen=True)
class Place:
    """A point of a source file; lines and columns count from 1."""

    file: str
    line: int
    column: int


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
        line = lines[place.line - 1].expandtabs(1)
        return f"\n    {line}\n    {' ' * (place.column - 1)}^"

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


UNKNOWN_SOURCE = Source()
"""For modules that were built and not parsed."""


def place_of(location: ir.Location) -> Place | None:
    """The innermost file position of a location, or None if it has none."""
    # A diagnostic's location comes as the base class; its attribute gives the class that it really is.
    match ir.Location.from_attr(location.attr, location.context):
        case ir.FileLineColLoc() as found:
            return Place(found.filename, found.start_line, found.start_col)
        case ir.NameLoc() as found:
            return place_of(found.child_loc)
        case ir.CallSiteLoc() as found:
            return place_of(found.callee) or place_of(found.caller)
        case ir.FusedLoc() as found:
            return next((place for part in found.locations if (place := place_of(part))), None)
    return None
