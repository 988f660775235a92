"""Reads the text of ``--mesh``."""

from __future__ import annotations

from shardc.diagnostics.cli import BadMesh


def parse_mesh(text: str) -> dict[str, int]:
    """``data=2,tensor=4`` as ``{"data": 2, "tensor": 4}``, in that order. Raises BadMesh."""
    mesh: dict[str, int] = {}
    for axis in text.split(","):
        name, equals, size = (part.strip() for part in axis.partition("="))
        problem = _problem(name, equals, size, mesh)
        if problem:
            raise BadMesh(mesh=text, problem=problem, where="--mesh")
        mesh[name] = int(size)
    return mesh


def _problem(name: str, equals: str, size: str, mesh: dict[str, int]) -> str | None:
    if not name and not equals:
        return "an axis is missing"
    if not equals:
        return f"the axis {name!r} has no size"
    if not name.isidentifier():
        return f"{name!r} is no name for an axis: use letters, digits and _"
    if name in mesh:
        return f"the axis {name!r} stands twice"
    if not (size.isascii() and size.isdecimal()) or int(size) < 1:
        return f"the size of axis {name!r} must be a whole number of at least 1, not {size!r}"
    return None
