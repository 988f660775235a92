"""Targets are used through their interface: no code outside a target's folder depends on the target."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OWN = ("backends/cpu/", "backends/triton/")
REGISTRY = "backends/registry.py"
"""Names the modules of targets, as text."""
RUNTIME = "python/shardc/runtime/"
"""Travels without the compiler: its loaders, one line each, open what targets compile, and devices are
torch's.
"""
ASKS = re.compile(
    r"(for|is|on|has|of)_(gpu|cpu|triton)s?|is_for_(gpu|cpu)|gpu_(target|kernels|matmuls)|(GPU|CPU)"
)
NAMES = re.compile(r"cpu|triton|sm_\d*|gfx\d*")


def sources() -> list[Path]:
    """The product's own files outside of targets' folders; not what links lead to a second time."""
    found = [p for top in ("dialects", "passes", "backends") for p in (ROOT / top).rglob("*.py")]
    inner = ROOT / "python" / "shardc"
    for folder in inner.iterdir():
        if folder.is_dir() and not folder.is_symlink():
            found += folder.rglob("*.py")
    names = {path.relative_to(ROOT).as_posix(): path for path in (*found, *inner.glob("*.py"))}
    return [path for name, path in sorted(names.items()) if not name.startswith(OWN)]


def questions(tree: ast.AST, is_runtime: bool) -> Iterator[str]:
    """What a file imports of a target, and where it asks which target it has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            if any(re.match(r"shardc\.backends\.(cpu|triton)\b", name) for name in names):
                yield f"line {node.lineno} imports {node.module}"
        elif isinstance(node, ast.Name | ast.arg):
            name = node.id if isinstance(node, ast.Name) else node.arg
            if not is_runtime and ASKS.fullmatch(name):
                yield f"line {node.lineno} has {name}"
        elif isinstance(node, ast.Compare) and not _is_of_device(node.left):
            if any(map(_names_target, (node.left, *node.comparators))):
                yield f"line {node.lineno} compares {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "startswith":
            asked = [arg for arg in node.args if _names_target(arg)]
            yield from (f"line {node.lineno} asks for {ast.unparse(arg)}" for arg in asked)


def _is_of_device(node: ast.expr) -> bool:
    """Whether something is the kind of a torch device, which says nothing of a target."""
    return isinstance(node, ast.Attribute) and node.attr == "type"


def _names_target(node: ast.expr) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return any(NAMES.fullmatch(text) for text in texts)


@pytest.mark.slow
def test_nobody_asks_which_target_it_is() -> None:
    assert len(sources()) > 300
    found = {
        name: asked
        for path in sources()
        if (name := path.relative_to(ROOT).as_posix()) != REGISTRY
        and (asked := list(questions(ast.parse(path.read_text()), name.startswith(RUNTIME))))
    }
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "from shardc.backends.cpu.host import target",
        "from shardc.backends import triton",
        "def fuse(module, for_gpu=False): ...",
        "if target == 'cpu': pass",
        "if name in ('sm_90', 'other'): pass",
        "name.startswith('sm_')",
    ],
)
def test_questions_are_found(text: str) -> None:
    assert list(questions(ast.parse(text), is_runtime=False))
    assert not list(questions(ast.parse("device.type == 'cpu'"), is_runtime=False))
