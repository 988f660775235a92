"""KernelBench's problems, read from a folder, with sizes that a CPU does in milliseconds.

A problem is a Python file with ``Model``, ``get_inputs()`` and ``get_init_inputs()``; its sizes are integer
constants of the module. The rule that scales them down:

1. The price of a forward call is ``flops / FLOPS + bytes / BYTES``, of the calls of ATen ops that the model
   makes on ``meta`` tensors. It says nothing of this machine, so that sizes are the same everywhere.
2. While the price is above :data:`SECONDS`, the largest constant above 16 is halved. Constants that only
   ``get_inputs`` reads (batch, height, sequence) go first, then those that the model's constructor reads
   (channels, features). A constant whose half the model refuses is halved with those equal to it, or stays.
3. Where nothing above 16 is left, constants down to 4 are halved, in the same order.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

FLOPS, BYTES = 40e9, 8e9
"""Operations and bytes per second of one CPU core, roughly."""
SECONDS = 0.02
LEAST = (16, 4)


@dataclass
class Problem:
    """One file, with its sizes changed to ``sizes``."""

    path: Path
    sizes: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def name(self) -> str:
        """Level and file, ``level1/22_Tanh``."""
        return f"{self.path.parent.name}/{self.path.stem}"

    def module(self) -> ModuleType:
        """The file as a module."""
        tree = ast.parse(self.path.read_text())
        found = ModuleType(self.path.stem)
        code = compile(ast.fix_missing_locations(_Sizes(self.sizes).visit(tree)), str(self.path), "exec")
        exec(code, found.__dict__)  # the problem itself: code that was given
        return found

    def model_and_inputs(self, device: str = "cpu") -> tuple[torch.nn.Module, list[Any]]:
        """The model in training mode and its inputs, drawn from seed 0."""
        module = self.module()
        torch.manual_seed(0)
        with torch.device(device):
            return module.Model(*module.get_init_inputs()), list(module.get_inputs())


def find(folder: Path) -> list[Problem]:
    """The problems of a folder with ``level1``, ``level2`` inside, in the order of their numbers."""
    files = sorted(folder.glob("level*/*.py"), key=lambda f: (f.parent.name, int(f.stem.partition("_")[0])))
    return [Problem(file) for file in files]


def scaled(problem: Problem) -> Problem:
    """The problem with sizes by the rule above."""
    tree = ast.parse(problem.path.read_text())
    found = _Sizes({})
    found.visit(tree)
    sizes = found.found
    built, made = (_read_by(tree, name, sizes) for name in ("get_init_inputs", "get_inputs"))
    for least in LEAST:
        refused: set[str] = set()
        while price(Problem(problem.path, sizes)) > SECONDS:
            able = {n for n, size in sizes.items() if size > least and n not in refused}
            able = (able & made) - built or able & (made | built)
            if not able:
                break
            chosen = max(able, key=lambda name: (sizes[name], name))
            halved = _halved(problem, sizes, {chosen}) or _halved(
                problem, sizes, {n for n in able if sizes[n] == sizes[chosen]}
            )
            refused |= set() if halved else {chosen}
            sizes = halved or sizes
    return Problem(problem.path, sizes)


def _halved(problem: Problem, sizes: dict[str, int], names: set[str]) -> dict[str, int] | None:
    """The sizes with some of them halved; None where the model refuses that."""
    tried = {name: size // 2 if name in names else size for name, size in sizes.items()}
    try:
        price(Problem(problem.path, tried))
    except (RuntimeError, ValueError, IndexError, AssertionError):
        return None
    return tried


def price(problem: Problem) -> float:
    """Seconds of a forward call by rule 1."""
    model, inputs = problem.model_and_inputs("meta")
    with torch.no_grad(), FlopCounterMode(display=False) as flops, _Bytes() as moved:
        model(*inputs)
    return flops.get_total_flops() / FLOPS + moved.total / BYTES


class _Bytes(TorchDispatchMode):
    """Counts what calls read and write; views move nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.total += sum(t.nbytes for t in (*tensors(args), *tensors(made)))
        return made


def tensors(value: object) -> list[Tensor]:
    """The tensors among nested values."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


class _Sizes(ast.NodeTransformer):
    """Finds the integers among a module's assignments, ``2 * 1024`` and parts of tuples too, and puts in
    those of ``sizes``. They are named by the (first) variable and the place in its value, ``shape.0``.
    """

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes, self.found = sizes, dict[str, int]()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=True)
            node.value.elts = [self._replaced(ast.unparse(t), v) for t, v in pairs]
        else:
            node.value = self._replaced(ast.unparse(target), node.value)
        return node

    def _replaced(self, name: str, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.Tuple):
            value.elts = [self._replaced(f"{name}.{i}", part) for i, part in enumerate(value.elts)]
        elif all(isinstance(n, ast.Constant | ast.BinOp | ast.operator) for n in ast.walk(value)):
            number = eval(compile(ast.Expression(value), "size", "eval"))
            if type(number) is int:
                self.found[name] = number
                return ast.Constant(self.sizes.get(name, number))
        return value


def _read_by(tree: ast.Module, function: str, sizes: dict[str, int]) -> set[str]:
    """The sizes that a function reads, by way of other module-level names too."""
    definitions: dict[str, ast.AST] = {}
    same: dict[str, str] = {}
    for line in tree.body:
        if isinstance(line, ast.Assign):
            names = [n.id for t in line.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            definitions.update(dict.fromkeys(names, line.value))
            if len(line.targets) > 1:
                same.update(dict.fromkeys(names, names[0]))
        elif isinstance(line, ast.FunctionDef):
            definitions[line.name] = line
    read: set[str] = set()
    ahead = [function]
    while ahead:
        name = ahead.pop()
        if name not in read and name in definitions:
            read.add(name)
            ahead += [n.id for n in ast.walk(definitions[name]) if isinstance(n, ast.Name)]
    read = {same.get(name, name) for name in read}
    return {size for size in sizes if size.partition(".")[0] in read}
