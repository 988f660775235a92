"""No file that shardc reads is a pickle, or anything else that executes when it is read."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXECUTED = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
ALLOWED = {
    "python/shardc/workers/process.py": "pipes to a process that this one started",
    "python/shardc/workers/worker.py": "the other end of them",
    "python/shardc/workers/forked.py": "a pipe from a forked child",
    "python/shardc/runtime/checkpoint/load.py": "an unpickler with an allow-list, which its tests attack",
}


def product() -> Iterator[tuple[str, ast.AST]]:
    for folder in ("python", "dialects", "passes", "backends"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.resolve() == path:
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_nothing_that_is_read_is_executed() -> None:
    found = {name for name, tree in product() if EXECUTED & set(imported(tree))}
    assert found == set(ALLOWED)


def test_torch_reads_tensors_alone() -> None:
    calls = [
        (name, node)
        for name, tree in product()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "np.load", "numpy.load")
    ]
    assert calls, "this test looks at nothing"
    wrong = [
        f"{name}:{node.lineno}"
        for name, node in calls
        if not any(
            k.arg == "weights_only" and isinstance(k.value, ast.Constant) and k.value.value is True
            for k in node.keywords
        )
    ]
    assert not wrong
