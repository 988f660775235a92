"""Reads of a tensor's parts as reads of the tensor, in a kernel that reads most of it.

A loop over time reads ``x[0]``, ``x[1]``, and so on. As tensors of their own, each is a view that the program
makes at each call.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardc.dialects.kern.size import hint
from shardc.passes.fuse.reading.graph import Access, Value
from shardc.passes.fuse.reading.space import Mismatch, Space
from shardc.passes.fuse.reading.unit import Unit

FEWEST_PARTS = 4
"""Least number of parts that are read as one tensor."""


def sources(values: Iterable[Value]) -> set[Value]:
    """Return the tensors that ``values`` are slices of, or ``values`` themselves."""
    return {_source(value) for value in values}


def read_whole(unit: Unit) -> None:
    """Let the nodes of ``unit`` read tensors of which they read :data:`FEWEST_PARTS` parts and one half.

    Fewer parts stay tensors of their own, so that the same ops on other parts are the same kernel.
    """
    parts: dict[Value, list[Value]] = {}
    for value in unit.accesses:
        source = _source(value)
        if source is not value and source.ir is not None and (source.node not in unit.domains):
            parts.setdefault(source, []).append(value)
    for source, values in parts.items():
        read = sum(hint(value.type.size_bytes) for value in values)
        if len(values) < FEWEST_PARTS or 2 * read < hint(source.type.size_bytes):
            continue
        found = {value: _through(unit, value, unit.accesses[value]) for value in values}
        for value, accesses in ((value, made) for value, made in found.items() if made is not None):
            became = dict(zip(unit.accesses.pop(value), accesses, strict=True))
            unit.accesses.setdefault(source, []).extend(accesses)
            for node in unit.nodes:
                node.accesses[:] = [became.get(access, access) for access in node.accesses]


def _source(value: Value) -> Value:
    """Return the tensor that ``value`` is a slice of, also behind reshapes of slices; else ``value``."""
    found = value
    while value.view is not None and value.view.source.type.is_static:
        is_cut, value = value.view.cut is not None, value.view.source
        found = value if is_cut else found
    return found


def _through(unit: Unit, value: Value, accesses: list[Access]) -> list[Access] | None:
    """Return the accesses of a slice as accesses of its source; None if they cannot be expressed."""
    space = unit.space.joined(Space())
    try:
        found = [_of_source(space, value, access) for access in accesses]
    except Mismatch:
        return None
    unit.space = space
    unit.domains = {node: space.resolve(atoms) for node, atoms in unit.domains.items()}
    return found


def _of_source(space: Space, value: Value, access: Access) -> Access:
    source, dims = _source(value), access.dims
    if access.gathers or len(dims) != len(value.type.shape):
        raise Mismatch
    while value is not source:
        assert value.view is not None
        dims = value.view.through(space, dims)
        value = value.view.source
    return Access(value, dims)
