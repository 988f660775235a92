"""Source positions behind the locations of MLIR ops."""

from dataclasses import dataclass

from torch_mlir import ir


@dataclass(frozen=True)
class Place:
    """A point of a source file; lines and columns count from 1."""

    file: str
    line: int
    column: int


def place_of(location: ir.Location) -> Place | None:
    """The innermost file position of a location, or None if it has none."""
    # The bindings return a location as the base class; its attribute gives the derived class.
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


def source_line(location: ir.Location) -> str | None:
    """``file:line`` of the innermost file position of a location, None if it has none."""
    place = place_of(location)
    return f"{place.file}:{place.line}" if place else None
