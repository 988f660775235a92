"""No file imports itself through others, nor does a folder of passes/. Imports under TYPE_CHECKING and within
functions count.
"""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOMES = {
    "shardc": ROOT / "python" / "shardc",
    **{f"shardc.{name}": ROOT / name for name in ("dialects", "passes", "backends")},
}
"""Where the modules under each name lie. In ``python/shardc`` the latter three are links."""


def module_files() -> dict[str, Path]:
    """The file of each module of the product, by its dotted name."""
    found = {}
    for package, home in HOMES.items():
        for path in home.rglob("*.py"):
            parts = path.relative_to(home).with_suffix("").parts
            if package == "shardc" and parts[0] in ("dialects", "passes", "backends"):
                continue  # where rglob follows links
            found[".".join((package, *(p for p in parts if p != "__init__")))] = path
    return found


def imported(module: str, path: Path, known: Iterable[str]) -> set[str]:
    """The modules of the product that a file imports."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            base = ".".join(filter(None, (above if node.level else "", node.module)))
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                names.add(whole if whole in known else base)
    return (names & set(known)) - {module}


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


def graph() -> dict[str, set[str]]:
    files = module_files()
    return {module: imported(module, path, files) for module, path in files.items()}


def test_circles_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set()}
    assert circles(edges) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_no_file_imports_itself() -> None:
    edges = graph()
    assert len(edges) > 700
    assert not circles(edges)


def test_no_folder_of_passes_imports_itself() -> None:
    folder = lambda module: module.split(".")[2]  # noqa: E731
    of_passes = {m: others for m, others in graph().items() if m.startswith("shardc.passes.")}
    edges: dict[str, set[str]] = {folder(m): set() for m in of_passes}
    for module, others in of_passes.items():
        near = {folder(o) for o in others if o.startswith("shardc.passes.")}
        edges[folder(module)] |= near - {folder(module)}
    assert len(edges) > 8
    assert not circles(edges)
