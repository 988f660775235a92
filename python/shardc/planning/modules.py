"""Memory of a rank at the peak, by the module class whose code made or owns it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from shardc.planning.memory import RankMemory
from shardc.runtime.check import STATE_ROLES


@dataclass(frozen=True)
class ModuleMemory:
    """Bytes of all modules of one class, or of one source line outside of modules (``paths`` is empty).

    ``paths``: names of these modules, with ``*`` for numbers. ``state_bytes``: parameters, optimizer state,
    buffers. ``made_bytes``: tensors that their code made and that are alive at the peak.
    """

    name: str
    paths: tuple[str, ...]
    state_bytes: int
    made_bytes: int

    @property
    def size_bytes(self) -> int:
        return self.state_bytes + self.made_bytes


def module_memory(model: torch.nn.Module, rank: RankMemory) -> list[ModuleMemory]:
    """Return the memory by module class, the largest first.

    PyTorch's own modules count as parts of the user's module that contains them.
    """
    owners = _owners(model)
    state, made = dict[str, int](), dict[str, int]()
    for argument in rank.arguments:
        if argument.role in STATE_ROLES:
            of = owners[_owner_path(argument.weight, owners)].__name__
            state[of] = state.get(of, 0) + argument.size_bytes
    lines = {_lines(kind): kind.__name__ for kind in owners.values()}
    for alive in rank.alive:
        of = _class_at(alive.place.where, lines) or alive.place.where or "the program"
        made[of] = made.get(of, 0) + alive.size_bytes
    paths = _paths(owners)
    found = (ModuleMemory(n, paths.get(n, ()), state.get(n, 0), made.get(n, 0)) for n in {**state, **made})
    return sorted((m for m in found if m.size_bytes), key=lambda m: -m.size_bytes)


def _owners(model: torch.nn.Module) -> dict[str, type]:
    """Return module name -> class. A module of PyTorch's gets the class of the user's module around it."""
    found: dict[str, type] = {}
    for path, module in model.named_modules():
        kind = type(module)
        is_own = not kind.__module__.startswith("torch.") or not path
        found[path] = kind if is_own else found[path.rpartition(".")[0]]
    return found


def _owner_path(weight: str, owners: Mapping[str, type]) -> str:
    """Return the name of the innermost module that contains a weight; the model's if no other does."""
    path = weight.rpartition(".")[0]
    while path not in owners:
        path = path.rpartition(".")[0]
    return path


def _paths(owners: Mapping[str, type]) -> dict[str, tuple[str, ...]]:
    """Return the names of each class's modules, without those inside another module of that class."""
    found: dict[str, dict[str, None]] = {}
    for path, kind in owners.items():
        parent = owners.get(path.rpartition(".")[0]) if path else None
        if parent is not kind:
            folded = ".".join("*" if part.isdecimal() else part for part in path.split("."))
            found.setdefault(kind.__name__, {})[folded or "the model"] = None
    return {name: tuple(paths) for name, paths in found.items()}


Lines = tuple[str, int, int]
"""A file's name, and the first and last line."""


@cache
def _lines(kind: type) -> Lines:
    """Return the source lines of a class; ``("", 0, 0)`` if its source is not found."""
    try:
        text, first = inspect.getsourcelines(kind)
        return Path(inspect.getsourcefile(kind) or "").name, first, first + len(text) - 1
    except (OSError, TypeError):
        return "", 0, 0


def _class_at(where: str, lines: Mapping[Lines, str]) -> str:
    """Return the innermost class that contains the line ``file.py:12``; empty if none does."""
    file, _, number = where.rpartition(":")
    if not number.isdecimal():
        return ""
    found = [
        (first, name)
        for (of, first, last), name in lines.items()
        if of == Path(file).name and first <= int(number) <= last
    ]
    return max(found)[1] if found else ""


def module_rows(modules: Sequence[ModuleMemory], most: int) -> list[tuple[str, str, int, int]]:
    """Return rows (class, where, state, made) of the first ``most``, and one for the sum of the others."""
    shown = [(m.name, _where(m.paths), m.state_bytes, m.made_bytes) for m in modules[:most]]
    rest = modules[most:]
    if not rest:
        return shown
    return [
        *shown,
        (f"{len(rest)} others", "", sum(m.state_bytes for m in rest), sum(m.made_bytes for m in rest)),
    ]


def _where(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more}" if paths else ""
