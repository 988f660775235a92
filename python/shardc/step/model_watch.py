"""Whether a model and its optimizer are still what a step was compiled from, looked at before each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from itertools import chain
from operator import is_, itemgetter

import torch
from torch import nn

from shardc.diagnostics.api import ModelChanged
from shardc.diagnostics.base import ShardcError
from shardc.frontend.importing.recorder import caller_line
from shardc.frontend.step.frozen import Thing, Values, changes, modules_of, python_values, told
from shardc.runtime.report.messages import ModelChangeWarning, warn_at
from shardc.runtime.step import TrainStep
from shardc.runtime.torch_private import (
    MODULE_TABLES,
    PARAMETER_MARKS,
    module_tables,
    optimizer_hooks,
    parameter_marks,
    uncompiled,
)
from shardc.step.elsewhere import Elsewhere

BASE = frozenset(vars(nn.Module())) - {"training"}
"""Attributes that PyTorch gives to each module, but its mode."""
KEPT = 16
"""How many states of a model that give the compiled program are remembered."""


class ModelWatch:
    """Called before each step; raises ModelChanged if eager PyTorch would not run the compiled step now.

    Returns the step of another mode (``train()``, ``eval()``) that ``of_mode`` has made, None for the own.

    A look compares objects by identity. Where any differs, values are compared. Modes (``train()``),
    ``requires_grad``, hooks and the user's own attributes may change if ``is_same``, which traces anew, says
    that the program is the same; another mode has a program of its own. Parameters, buffers and modules are
    not to be replaced. Attributes that the forward itself sets, ``written``, are no matter.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: object,
        optimizer: torch.optim.Optimizer,
        written: Collection[tuple[str, str]],
        is_same: Callable[[], bool],
        of_mode: Callable[[], TrainStep],
    ) -> None:
        self._modules = modules_of(uncompiled(model), loss)
        self._optimizer, self._is_same, self._of_mode = optimizer, is_same, of_mode
        self._written = {*written, *((path, _attribute(name)) for path, name in written)}
        self._now: TrainStep | None = None
        self._known: list[tuple[Values, TrainStep | None]] = []
        self.renew()

    def renew(self) -> None:
        """Take all that is there now for what the step runs on, but the modes: those are the compiled ones.

        At the first step on a mesh, its tensors stand in the model.
        """
        self._params = {
            (path, name): parameter
            for path, module in self._modules.items()
            for name, parameter in module.named_parameters(recurse=False)
        }
        self._remember()
        modes = {key: value for known, _ in self._known[:1] for key, value in known.items() if _is_mode(key)}
        values = self._values()
        first: Values = {**values, **modes}
        self._now = None
        self._known = [(first, None)]
        if first != values:
            self._seen = []

    def check_start(self) -> None:
        """Before the first step: the same look, unless another step over these modules has put its tensors
        there. Another mode waits until the step runs.
        """
        is_replaced = any(isinstance(parameter, Elsewhere) for parameter in self._params.values())
        if not is_replaced and not all(map(_is_mode, changes(self._known[0][0], self._values()))):
            self()

    def __call__(self) -> TrainStep | None:
        try:
            seen = self._glance()
        except KeyError:  # an attribute is gone
            seen = []
        old = self._seen
        if len(seen) != len(old) or not all(map(is_, seen, old)) or self._lengths() != self._sizes:
            self._now = self._compare()
            self._remember()
        return self._now

    def _remember(self) -> None:
        """Take what is there now for what a glance is to find."""
        self._attributes = [vars(module) for module in self._modules.values()]
        self._own = [itemgetter("training", "training", *self._own_names(path)) for path in self._modules]
        self._tables = [*module_tables(self._modules.values()), *optimizer_hooks(self._optimizer)]
        for parameter in self._params.values():
            self._tables += [mark for mark in parameter_marks(parameter) if isinstance(mark, dict)]
        self._filled = [table for table in self._tables if table]
        self._seen, self._sizes = self._glance(), self._lengths()

    def _own_names(self, path: str) -> list[str]:
        names = vars(self._modules[path])
        return [name for name in names if name not in BASE and (path, name) not in self._written]

    def _glance(self) -> list[object]:
        """All objects that are to stay what they are."""
        found = list(chain.from_iterable(map(dict.values, self._filled)))
        for read, held in zip(self._own, self._attributes, strict=True):
            found += read(held)
        found += chain.from_iterable(map(parameter_marks, self._params.values()))
        for group in self._optimizer.param_groups:
            found += group["params"]
        return found

    def _lengths(self) -> list[int]:
        return [*map(len, self._tables), *map(len, self._attributes)]

    def _values(self) -> Values:
        """What :meth:`_glance` sees, by name."""
        found = {
            (path, name): value
            for (path, name), value in python_values(self._modules).items()
            if (path, name) not in self._written
            and (
                (inner := _attribute(name)) in MODULE_TABLES
                or (inner not in BASE and (path, inner) not in self._written)
            )
        }
        for (path, name), parameter in self._params.items():
            for mark, value in zip(PARAMETER_MARKS, parameter_marks(parameter), strict=True):
                found[path, f"{name}.{mark}"] = tuple(value or ()) if "hooks" in mark else value
        held = [group["params"] for group in self._optimizer.param_groups]
        found["optimizer", "param_groups"] = tuple(
            Thing(parameter) for params in held for parameter in params
        )
        found["optimizer", "hooks"] = tuple(chain.from_iterable(optimizer_hooks(self._optimizer)))
        return found

    def _compare(self) -> TrainStep | None:
        """The step for the values that are there now. Raises ModelChanged if there can be none."""
        values = self._values()
        for known, step in self._known:
            if known == values:
                return step
        first, _ = self._known[0]
        what = told(first, values, "when the step was compiled", "now")
        changed = changes(first, values)
        step = None
        if not (all(map(_may_change, changed)) and self._traced_same(what)):
            if not all(map(_is_mode, changed)):
                file, line = caller_line()[0]
                raise ModelChanged(changes=what, where=f"{file}:{line}")
            step = self._compiled(what)
        self._known = [self._known[0], *self._known[1:][1 - KEPT :], (values, step)]
        return step

    def _compiled(self, what: str) -> TrainStep:
        """A step for another mode, with a warning that says what it took."""
        started = time.perf_counter()
        with torch.enable_grad():
            made = self._of_mode()
        took = f"{time.perf_counter() - started:.1f} s"
        _warn("ModeCompiled", f"{what}: compiled a program for this mode, {took}")
        return made

    def _traced_same(self, what: str) -> bool:
        """Whether the program is what it was, by another trace; with a warning if it is."""
        started = time.perf_counter()
        try:
            with torch.enable_grad():
                same = self._is_same()
        except ShardcError as error:
            raise ModelChanged(changes=what, where=error.where) from error
        if same:
            took = f"{time.perf_counter() - started:.1f} s"
            text = f"{what}: another trace, {took}, found the same program, which calls no Python"
            _warn("ModelTracedAgain", text)
        return same


def _warn(identity: str, text: str) -> None:
    """A warning at the user's line."""
    warn_at(identity, text, ModelChangeWarning, caller_line()[0])


def _attribute(name: str) -> str:
    """``counts`` of ``counts['calls']``."""
    return name.partition("[")[0]


def _is_mode(key: tuple[str, str]) -> bool:
    return key[1] == "training"


def _may_change(key: tuple[str, str]) -> bool:
    """Whether the program alone depends on it, so that another trace tells."""
    held = ("_parameters", "_buffers", "_modules", "param_groups")
    return _attribute(key[1]) not in held and not key[1].endswith(".dtype")
