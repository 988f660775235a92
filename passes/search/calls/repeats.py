"""Calls of backward that repeat a call of forward."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Program


def repeats(program: Program) -> Mapping[int, int]:
    """Return recomputed call -> the call of forward that it repeats."""
    found: dict[int, int] = {}
    first: dict[Hashable, int] = {}
    original: dict[int, int] = {}
    """Recomputed value -> the value of forward."""
    for number, node in enumerate(program.nodes):
        key = node.spec, tuple(original.get(value, value) for value in node.operands)
        if phase_of(node.op) != "recompute":
            first.setdefault(key, number)
        elif key in first:
            found[number] = first[key]
            original |= zip(node.results, program.nodes[first[key]].results, strict=True)
    return found
