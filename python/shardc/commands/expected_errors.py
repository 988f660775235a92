"""``--verify-diagnostics``: the errors that occur must be those that comments in the input expect.

    // expected-error@+1 {{part of the message}}

The place is ``@+1`` or ``@-1`` (lines from the comment), ``@below`` or ``@above`` (the next or last line
without an expectation), ``@unknown`` (an error without a line in this input), or nothing for the comment's
own line. The kind is ``error`` or ``note``; every error must be expected, notes need not be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch_mlir import ir

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.cli import BadExpectation, DiagnosticMismatch
from shardc.dialects.location import place_of
from shardc.passes.manager.mlir_errors import UNNAMED_SOURCE

_MENTION = re.compile(r"//.*\bexpected-(error|note|warning|remark)\b")
_EXPECTATION = re.compile(r"\bexpected-(error|note)\s*(?:@([+-]\d+|above|below|unknown))?\s*\{\{(.*)\}\}\s*$")
_WHERE = re.compile(r"(?P<file>.*?):(?P<line>\d+)(?::\d+)?")


@dataclass(frozen=True)
class Diagnostic:
    """An expected or found error or note. ``line`` counts from 1; None means outside of the input."""

    kind: str
    line: int | None
    message: str

    def render(self, source_name: str, what: str) -> str:
        return f"    {source_name}:{self.line or 'unknown'}: {what} {self.kind}: {self.message}"

    def is_met_by(self, found: Diagnostic) -> bool:
        return (self.kind, self.line) == (found.kind, found.line) and self.message in found.message


def expectations(text: str) -> list[Diagnostic]:
    """Parse the expectations in the comments of ``text``. Raises BadExpectation for a malformed comment."""
    lines = text.split("\n")
    mentions = [bool(_MENTION.search(line)) for line in lines]
    found = []
    for index, line in enumerate(lines):
        if not mentions[index]:
            continue
        match = _EXPECTATION.search(line)
        if match is None:
            raise BadExpectation(text=line.strip(), where=f"line {index + 1}")
        kind, place, message = match.groups()
        found.append(Diagnostic(kind, _target_line(index, place, mentions), message))
    return found


def diagnostics_of(error: ShardcError, source_name: str) -> list[Diagnostic]:
    """Return the errors and notes of ``error``: all of MLIR's if MLIR is the cause, else the error itself."""
    if isinstance(error.__cause__, ir.MLIRError):
        return [found for info in error.__cause__.error_diagnostics for found in _of_mlir(info)]
    return [Diagnostic("error", _line_of(error.where, source_name), error.render())]


def check(expected: list[Diagnostic], found: list[Diagnostic], source_name: str) -> None:
    """Raise DiagnosticMismatch with all unexpected errors and all unmet expectations."""
    missing, unexpected = list(expected), []
    for diagnostic in found:
        met = [one for one in missing if one.is_met_by(diagnostic)]
        if met:
            missing.remove(met[0])
        elif diagnostic.kind == "error":
            unexpected.append(diagnostic)
    details = [one.render(source_name, "unexpected") for one in unexpected]
    details += [one.render(source_name, "not produced: expected") for one in missing]
    if details:
        raise DiagnosticMismatch(details="\n".join(details), where=source_name)


def _target_line(index: int, place: str | None, mentions: list[bool]) -> int | None:
    """Return the 1-based line that an expectation at the 0-based ``index`` refers to."""
    if place == "unknown":
        return None
    if place in ("above", "below"):
        step = -1 if place == "above" else 1
        index += step
        while 0 <= index < len(mentions) and mentions[index]:
            index += step
        return index + 1
    return index + 1 + int(place or 0)


def _of_mlir(info: ir.DiagnosticInfo) -> list[Diagnostic]:
    place = place_of(info.location)
    line = place.line if place and place.file == UNNAMED_SOURCE else None
    kind = "note" if info.severity == ir.DiagnosticSeverity.NOTE else "error"
    return [Diagnostic(kind, line, info.message), *(note for one in info.notes for note in _of_mlir(one))]


def _line_of(where: str | None, source_name: str) -> int | None:
    match = _WHERE.fullmatch(where or "")
    return int(match["line"]) if match and match["file"] in (UNNAMED_SOURCE, source_name) else None
