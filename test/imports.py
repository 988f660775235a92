"""Which module of the product imports which, read from its files.

Imports under TYPE_CHECKING and within functions count.
"""

import ast
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOP_LEVEL = ("dialects", "passes", "backends")
"""Packages of shardc that lie beside ``python/`` and are links in it."""


def module_files() -> dict[str, Path]:
    """The file of each module of the product, by its dotted name."""
    found = {}
    for package, home in {
        "": ROOT / "python" / "shardc",
        **{name: ROOT / name for name in TOP_LEVEL},
    }.items():
        for path in home.rglob("*.py"):
            parts = path.relative_to(home).with_suffix("").parts
            if package or parts[0] not in TOP_LEVEL:  # where rglob follows links
                names = ("shardc", package, *(p for p in parts if p != "__init__"))
                found[".".join(filter(None, names))] = path
    return found


def imported(module: str, path: Path, known: Iterable[str]) -> set[str]:
    """The modules among ``known`` that the file of ``module`` imports."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, (above, node.module)))
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                names.add(whole if whole in known else base)
    return (names & set(known)) - {module}


def import_graph() -> dict[str, set[str]]:
    """The modules that each module imports."""
    files = module_files()
    return {module: imported(module, path, files) for module, path in files.items()}
