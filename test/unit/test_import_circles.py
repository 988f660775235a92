"""No file imports itself through others, nor does a folder of passes/. Imports under TYPE_CHECKING and within
functions count.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from imports import import_graph


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """The sets of more than one node that reach each other: Tarjan's strongly connected components."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            start = stack.index(node)
            part = stack[start:]
            del stack[start:]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def test_circles_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set()}
    assert circles(edges) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_no_file_imports_itself() -> None:
    edges = import_graph()
    assert len(edges) > 700
    assert not circles(edges)


def test_no_folder_of_passes_imports_itself() -> None:
    folder = lambda module: module.split(".")[2]  # noqa: E731
    of_passes = {m: others for m, others in import_graph().items() if m.startswith("shardc.passes.")}
    edges: dict[str, set[str]] = {folder(m): set() for m in of_passes}
    for module, others in of_passes.items():
        near = {folder(o) for o in others if o.startswith("shardc.passes.")}
        edges[folder(module)] |= near - {folder(module)}
    assert len(edges) > 8
    assert not circles(edges)
