"""Imports point one way: diagnostics, cache, workers <- dialects <- cost <- passes <- backends <- tuner <-
compiler <- report <- step, dynamo, artefact <- planning <- commands <- cli. Options stand below passes; of
cost they import clusters alone, which are data.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What each package may import of the others. Deferred imports count too.
ALLOWED = {
    "diagnostics": {"runtime"},
    "runtime": set(),
    "workers": set(),
    "cache": {"diagnostics", "runtime"},
    "options": {"diagnostics", "runtime", "cost"},
    "dialects": {"diagnostics", "runtime"},
    "frontend": {"diagnostics", "dialects", "runtime"},
    "cost": {"diagnostics", "dialects"},
    "passes": {"diagnostics", "options", "dialects", "cost", "runtime", "workers"},
    "backends": {"diagnostics", "cache", "options", "dialects", "cost", "passes", "runtime", "workers"},
    "tuner": {"diagnostics", "cache", "dialects", "cost", "passes", "backends", "runtime", "workers"},
    "compiler": {
        "options",
        "diagnostics",
        "cache",
        "dialects",
        "cost",
        "passes",
        "backends",
        "tuner",
        "frontend",
        "runtime",
    },
    "report": {
        "diagnostics",
        "dialects",
        "cost",
        "passes",
        "backends",
        "tuner",
        "compiler",
        "runtime",
        "options",
    },
    "dynamo": {
        "diagnostics",
        "cache",
        "dialects",
        "cost",
        "passes",
        "backends",
        "tuner",
        "frontend",
        "runtime",
        "options",
        "compiler",
        "report",
        "workers",
    },
    "artefact": {"diagnostics", "backends", "frontend", "runtime"},
    "step": {
        "artefact",
        "backends",
        "cache",
        "compiler",
        "cost",
        "diagnostics",
        "dialects",
        "frontend",
        "options",
        "passes",
        "report",
        "runtime",
        "tuner",
    },
    "planning": {
        "backends",
        "cache",
        "compiler",
        "cost",
        "diagnostics",
        "dialects",
        "frontend",
        "options",
        "passes",
        "report",
        "runtime",
        "step",
        "workers",
    },
    "commands": {
        "diagnostics",
        "cache",
        "dialects",
        "cost",
        "passes",
        "backends",
        "tuner",
        "frontend",
        "runtime",
        "options",
        "compiler",
        "step",
        "dynamo",
        "artefact",
        "report",
        "planning",
    },
    "cli": {"diagnostics", "options", "commands", "report", "passes", "runtime"},
    "integrations": {"diagnostics", "frontend", "options", "runtime", "step"},
}
HOMES = {
    package: ROOT / package
    if package in ("dialects", "passes", "backends")
    else ROOT / "python" / "shardc" / package
    for package in ALLOWED
}


def imports(path: Path) -> set[str]:
    """The packages of shardc that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("shardc.")}
    return found & set(ALLOWED)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("package", ALLOWED)
def test_imports_point_one_way(package: str) -> None:
    files = sorted(HOMES[package].rglob("*.py"))
    assert files
    wrong = {
        str(path.relative_to(ROOT)): extra
        for path in files
        if (extra := imports(path) - ALLOWED[package] - {package})
    }
    assert not wrong


def test_options_know_clusters_alone_of_what_is_costed() -> None:
    lines = [line for path in HOMES["options"].rglob("*.py") for line in path.read_text().splitlines()]
    found = {line.split()[1] for line in lines if line.startswith(("from shardc.cost", "import shardc.cost"))}
    assert found and all(name.startswith("shardc.cost.cluster.") for name in found)


def test_the_runtime_needs_torch_alone() -> None:
    """Artefacts carry a copy of it to machines without shardc."""
    for path in (ROOT / "python" / "shardc" / "runtime").rglob("*.py"):
        tree = ast.parse(path.read_text())
        absolute = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level == 0 and n.module]
        names = {n.module.split(".")[0] for n in absolute}
        names |= {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert not names & {"shardc", "torch_mlir", "numpy", "safetensors", "rich", "typer"}, path
