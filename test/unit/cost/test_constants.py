"""Constants of machines: each is in ``cost/`` and has an origin."""

import ast
import importlib
import operator
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pytest

import shardc.cost
from shardc.cost.machine import Cpu, Gpu
from shardc.cost.origin import Assumed, Fitted, Measured, Published, Sheet

ROOT = Path(__file__).resolve().parents[3]
MODULES = [
    importlib.import_module(m.name) for m in pkgutil.walk_packages(shardc.cost.__path__, "shardc.cost.")
]
Origin = Measured | Sheet | Published | Fitted | Assumed
LARGE = 1e6
OPERATORS = {
    ast.Add: operator.add,
    ast.Div: operator.truediv,
    ast.LShift: operator.lshift,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.Sub: operator.sub,
}
RATE = re.compile(r"(_bytes_s|_flop_s|_hz|latency(_s)?|bandwidth|launch(_s|_bytes)?|_cycles)$", re.I)
"""What names of rates and latencies end in."""
ALLOWED = {
    "python/shardc/runtime/": "it travels with artefacts, without cost/",
    "backends/cpu/lanes/": "bits and polynomials of floats",
    "backends/cpu/object_code/elf.py": "marks of a file format",
    "backends/cpu/emit/buffers.py": "bounds of a type whose size is not known",
    "backends/triton/emit/": "ranges of integers and floats",
    "backends/triton/attention/shared.py": "beyond all positions",
    "backends/triton/matmul/contraction.py": "the range of 32 bits",
    "dialects/kern/size.py": "numbers of symbols",
    "passes/accumulate/step_parts.py": "how far seeds are apart",
    "passes/fuse/bodies/flat.py": "stands for any number of elements",
    "passes/fuse/grouping/group.py": "more than any saving",
    "passes/search/solver/network.py": "more than the cost of any plan",
    "passes/search/solver/reduced.py": "the size of a table",
    "python/shardc/environment.py": "room on a disk",
    "python/shardc/frontend/": "seeds and ranges of integers",
    "python/shardc/step/hugging_face.py": "the size of a file",
    "backends/eager/proof/perturb.py": "a seed",
    "python/shardc/options/": "ranges of integers",
    "backends/tuning/sketches.py": "a threshold that nothing reaches",
}
"""Where large numbers are no figures of a machine, and why."""


def number(node: ast.AST) -> float | None:
    """The value of an expression of literals."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.BinOp(left, op, right) if (a := number(left)) is not None and (
            b := number(right)
        ) is not None:
            return OPERATORS[type(op)](a, b) if type(op) in OPERATORS else None
    return None


def is_unit(value: float) -> bool:
    """Whether it turns seconds into microseconds, and the like."""
    return value in (1e6, 1e9, 1e12)


def figures(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines with large numbers, and with numbers that are called rates or latencies."""
    for node in ast.walk(tree):
        value = number(node)
        if value is not None and LARGE <= abs(value) < float("inf") and not is_unit(value):
            yield node.lineno, f"{value:g}"
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if RATE.search(name) and node.value is not None and number(node.value):
                    yield node.lineno, name
            case ast.keyword(arg=str(name)) if RATE.search(name) and number(node.value):
                yield node.value.lineno, name


def product_files() -> Iterator[Path]:
    for folder in ("dialects", "passes", "backends", "python/shardc"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not path.is_relative_to(ROOT / "python/shardc/cost"):
                yield path.relative_to(ROOT)


@pytest.mark.slow
def test_figures_of_machines_stand_in_cost() -> None:
    found = {
        f"{path}:{line}": figure
        for path in product_files()
        if not str(path).startswith(tuple(ALLOWED))
        for line, figure in figures(ast.parse((ROOT / path).read_text()))
    }
    assert not found


def test_what_is_looked_for_is_found() -> None:
    text = "A = 4 << 20\nlaunch_s: float = 3e-6\nf(memory_bytes_s=2.0)\nus = 1e6 * t\nlatency_s = 0.0"
    assert sorted(figures(ast.parse(text))) == [(1, "4.1943e+06"), (2, "launch_s"), (3, "memory_bytes_s")]


@pytest.mark.parametrize("allowed", ALLOWED)
def test_no_entry_of_the_list_is_left_over(allowed: str) -> None:
    files = [path for path in product_files() if str(path).startswith(allowed)]
    assert any(list(figures(ast.parse((ROOT / path).read_text()))) for path in files)


def origins(of: type | ModuleType) -> dict[str, Origin]:
    """The constants of a dataclass or a module that say where they are from, by name."""
    hints = get_type_hints(of, include_extras=True)
    found = ((name, getattr(hint, "__metadata__", ())) for name, hint in hints.items())
    return {name: said[0] for name, said in found if said}


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_every_constant_says_where_it_is_from(module: ModuleType) -> None:
    """Numbers, and collections that hold one that is no integer."""
    known = origins(module)
    for node in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            parts = [] if node.value is None else [number(part) for part in ast.walk(node.value)]
            is_figure = parts and (parts[0] is not None or any(isinstance(n, float) for n in parts))
            if is_figure and target.id != "_ROWS":  # of a table whose fields say it
                assert isinstance(known.get(target.id), Origin), target.id


@pytest.mark.parametrize("of", [Gpu, Cpu])
def test_every_figure_of_a_machine_says_where_it_is_from(of: type) -> None:
    known = origins(of)
    assert known
    names = {"name", "part", "backend", "arch"}
    missing = {f.name for f in fields(of)} - known.keys() - names
    assert not missing
    assert all(isinstance(origin, Measured | Sheet | Published | Assumed) for origin in known.values())
