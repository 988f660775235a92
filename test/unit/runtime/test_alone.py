"""The runtime stands alone: every artefact carries a copy to where neither shardc nor its
dependencies are.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import shardc.runtime

FILES = sorted(Path(str(shardc.runtime.__file__)).parent.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_imports_torch_and_the_standard_library_alone(path: Path) -> None:
    allowed = {"torch", *sys.stdlib_module_names} | ({"triton"} if path.name.startswith("triton_") else set())
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [str(node.module)]
        else:
            continue
        for name in names:
            assert name.partition(".")[0] in allowed, f"{path.name}:{node.lineno} imports {name}"


def test_there_is_something_to_check() -> None:
    assert {"step.py", "collectives.py", "random.py", "attention.py"} <= {path.name for path in FILES}
