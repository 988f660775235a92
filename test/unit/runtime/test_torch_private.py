"""Private names of PyTorch: which the installed one lacks, and that no other file has or replaces any."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

from shardc.runtime import torch_private
from shardc.runtime.errors import PrivateNameMissing

ROOT = Path(__file__).resolve().parents[3]
LISTED = "python/shardc/runtime/torch_private.py"
FILES = [
    path
    for folder in ("python/shardc", "dialects", "passes", "backends")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not any(parent.is_symlink() for parent in path.parents)
]
PUBLIC = {
    *("_replace", "_asdict", "_getframe", "_exit"),
    *("_c", "_graph_to_function_meta", "_import_getitem", "_import_torch_op_overload"),
    "_patch_lang_tensor",
    *("_current_fx_name", "_prepare_inputs"),
}
"""Of named tuples, ``sys`` and ``os``; of Torch-MLIR's importer, which ours extends; of Triton; of Lightning
and ``transformers``, whose classes ours extend."""
LENT = {"torch.autocast.__init__"}
"""What a context of ``torch_private.py`` replaces for the length of a trace, and puts back."""

WEIGHT = torch.nn.Parameter(torch.ones(2))
ATTRIBUTES: dict[str, Callable[[], object]] = {
    "OpOverload._schema": lambda: torch_private.schema_of(torch.ops.aten.add.Tensor).name,
    "OpOverload._op": lambda: torch_private.direct_call(torch.ops.aten.add.Tensor)(WEIGHT, 1),
    "UntypedStorage._cdata": lambda: torch_private.storage_address(WEIGHT.untyped_storage()),
    "Node._sequence_nr": lambda: torch_private.sequence_number_of((WEIGHT * 2).grad_fn),
    "Tensor._backward_hooks": lambda: torch_private.gradient_hooks(WEIGHT),
    "Tensor._post_accumulate_grad_hooks": lambda: torch_private.parameter_marks(WEIGHT),
    "Module._forward_hooks": lambda: torch_private.module_tables([torch.nn.Linear(1, 1)]),
    "Optimizer._optimizer_step_pre_hooks": lambda: torch_private.optimizer_hooks(
        torch.optim.SGD([WEIGHT], 0.1)
    ),
    "torch.optim.optimizer._global_optimizer_pre_hooks": torch_private.global_optimizer_hooks,
    "OptimizedModule._orig_mod": lambda: (
        torch.compile(torch.nn.Linear(1, 1), backend="eager")._orig_mod  # pyright: ignore[reportFunctionMemberAccess]
    ),
    "DTensor._local_tensor": lambda: DTensor._local_tensor,
    "Optimizer._opt_called": lambda: _source_of(torch.optim.lr_scheduler).index("_opt_called"),
    "_boxed_call of functions": lambda: _source_of("torch._functorch._aot_autograd.utils").index(
        "_boxed_call"
    ),
    "torch.utils.checkpoint._allowed_determinism_checks_to_fns": lambda: _entered("recomputation_unchecked"),
    "Distribution._validate_args": lambda: _entered("distributions_unchecked"),
    "torch.autocast.__init__": lambda: _entered("autocast_for_all"),
}
"""What the functions of ``torch_private.py`` read, and a use of each."""


def _source_of(module: Any) -> str:
    if isinstance(module, str):
        module = __import__(module, fromlist=["_"])
    return Path(module.__file__).read_text()


def _entered(context: str) -> None:
    with getattr(torch_private, context)():
        pass


def missing(names: Any, attributes: dict[str, Callable[[], object]]) -> list[str]:
    """The names that PyTorch lacks, with what they are for and what would do instead."""
    found = []
    for name in names:
        try:
            getattr(torch_private, name)
        except PrivateNameMissing as error:
            found.append(str(error))
    for name, use in attributes.items():
        try:
            use()
        except (AttributeError, KeyError, ValueError, TypeError) as error:
            found.append(f"{name}: {error}")
    return found


def test_pytorch_has_every_name() -> None:
    gone = missing(torch_private.NAMES, ATTRIBUTES)
    assert not gone, "\n" + "\n".join(gone)


ALONE = """
import os, sys, torch
from shardc.runtime import torch_private
modules = {path.partition(":")[0]: name for name, (path, *_) in torch_private.NAMES.items()}
for module, name in modules.items():
    if module not in sys.modules and os.fork() == 0:
        getattr(torch_private, name)
        os._exit(0)
while True:
    try:
        failed = os.wait()[1]
    except ChildProcessError:
        sys.exit(0)
    if failed:
        sys.exit(1)
"""


@pytest.mark.slow
def test_each_name_can_be_the_first_that_is_read() -> None:
    """Modules of PyTorch import each other in circles."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_gone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = torch_private.Name("torch._ops:OldOverload", "operators in graphs", "torch.Overload")
    monkeypatch.setitem(torch_private.NAMES, "OldOverload", gone)
    (text,) = missing(["OldOverload"], {})
    assert f"PyTorch {torch.__version__} has no torch._ops.OldOverload: operators in graphs" in text
    assert "instead of it: torch.Overload" in text
    assert torch_private.optional("OldOverload") is None
    (text,) = missing([], {"Tensor._old": lambda: torch.Tensor._old})
    assert text.startswith("Tensor._old: ")


def test_every_name_has_a_reason_and_is_used() -> None:
    sources = {path: path.read_text() for path in FILES if path != ROOT / LISTED}
    for name, (path, why, instead) in torch_private.NAMES.items():
        assert path.startswith("torch") and why and instead, name
        assert any(name in source for source in sources.values()), f"nobody uses {name}"
    tree = ast.parse((ROOT / LISTED).read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name not in ("__getattr__", "optional"):
            assert "Instead: " in (ast.get_docstring(node) or ""), node.name


def test_types_are_those_of_the_table() -> None:
    """What pyright reads, and what is read at run time."""
    tree = ast.parse((ROOT / LISTED).read_text())
    (block,) = (n for n in tree.body if isinstance(n, ast.If))
    typed = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert typed and typed == {name: torch_private.NAMES[name].path.replace(":", ".") for name in typed}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def imported(tree: ast.AST) -> dict[str, str]:
    """The names that a file has of PyTorch, by what they stand for there."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            parts = (
                (alias.asname or "torch", alias.name if alias.asname else "torch", alias)
                for alias in node.names
            )
            found |= {own: full for own, full, alias in parts if alias.name.partition(".")[0] == "torch"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def full_name(node: ast.AST, names: dict[str, str]) -> str | None:
    """``torch.a.b`` for an expression that begins with a name of PyTorch."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    base = full_name(node.value, names)
    return None if base is None else f"{base}.{node.attr}"


def own_names(trees: list[ast.AST]) -> set[str]:
    """The private attributes that these files define themselves."""
    found = set(PUBLIC)
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node.value):
            found.add(node.attr)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _is_own(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_names(tree: ast.AST, own: set[str]) -> Iterator[str]:
    """Private parts of PyTorch that a file names, and private attributes that are not ours."""
    names = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("torch.") and _has_private(a.name))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            full = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from filter(_has_private, full)
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            full_path = full_name(node, names)
            if full_path is not None and full_path.startswith("torch.ops."):
                continue  # operators are public, whatever their names
            if full_path is not None or (node.attr not in own and not _is_operator(node)):
                yield full_path or node.attr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr")
        ):
            name = node.args[1]
            if (
                isinstance(name, ast.Constant)
                and is_private(str(name.value))
                and full_name(node.args[0], names)
            ):
                yield f"{full_name(node.args[0], names)}.{name.value}"


def _is_operator(node: ast.Attribute) -> bool:
    """``aten._softmax`` and its overloads."""
    while isinstance(node.value, ast.Attribute):
        node = node.value
    return isinstance(node.value, ast.Name) and node.value.id in ("aten", "prims", "prim")


def _has_private(name: str) -> bool:
    return any(map(is_private, name.split(".")))


def replaced(tree: ast.AST) -> Iterator[str]:
    """What a file puts in the place of something of PyTorch's, and its uses of mocks."""
    names = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            if full := full_name(node, names):
                yield full
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("setattr", "delattr")
        ):
            if full := full_name(node.args[0], names):
                yield f"{full} by {node.func.id}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            yield from (m for m in modules if "mock" in m.split(".") or m in ("pytest", "monkeypatch"))


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.AST]:
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in FILES}


@pytest.mark.slow
def test_no_other_file_names_a_private_part(trees: dict[str, ast.AST]) -> None:
    own = own_names(list(trees.values()))
    found = {path: sorted(set(private_names(tree, own))) for path, tree in trees.items() if path != LISTED}
    assert {path: names for path, names in found.items() if names} == {}


def test_nothing_of_pytorch_is_replaced(trees: dict[str, ast.AST]) -> None:
    found = {path: set(replaced(tree)) - (LENT if path == LISTED else set()) for path, tree in trees.items()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "code, name",
    [
        ("from torch._dynamo import config", "torch._dynamo.config"),
        ("import torch._inductor.config", "torch._inductor.config"),
        ("import torch\ntorch._C._nn.gelu", "torch._C._nn"),
        ("from torch.nn import functional as F\nF._pad", "torch.nn.functional._pad"),
        ("def f(op):\n    return op._schema", "_schema"),
        ("import torch\ngetattr(torch.nn, '_reduction')", "torch.nn._reduction"),
    ],
)
def test_a_private_name_is_seen(code: str, name: str) -> None:
    assert name in set(private_names(ast.parse(code), {"_mine"}))


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.ops.aten._softmax(x)",
        "aten = 0\naten._softmax.default",
        "def f(x):\n    return x._mine",
    ],
)
def test_operators_and_names_of_ours_are_none(code: str) -> None:
    assert not set(private_names(ast.parse(code), {"_mine"}))


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch.nn.Linear.forward = f",
        "from torch.distributions import Distribution\nDistribution.arg = 1",
        "import torch.nn.functional as F\nsetattr(F, 'gelu', f)",
        "import torch\ndel torch.compile",
        "from unittest.mock import patch",
        "from unittest import mock",
    ],
)
def test_a_replaced_function_is_seen(code: str) -> None:
    assert set(replaced(ast.parse(code)))
