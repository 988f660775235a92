"""Check, before each step, that the model and the optimizer are still what the step was compiled from."""

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
"""Attributes that PyTorch gives to each module, except its mode."""
KEPT = 16
"""Maximum number of remembered model states that are known to give a compiled program."""


class ModelWatch:
    """Check before each step. Raises ModelChanged if eager PyTorch would not run the compiled step now.

    A call returns None if the compiled step is right, or the step that ``of_mode`` compiled for the present
    mode (``train()``, ``eval()``).

    The check first compares objects by identity, and values only if an object differs. ``requires_grad``,
    hooks and the user's own attributes may change if ``is_same``, which traces the model again, finds the
    same program. A changed mode gets a program of its own. Replaced parameters, buffers and modules are
    errors. ``written``: attributes that the forward itself sets, which are ignored.
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
        """Take the model's present state, except for its modes, as the compiled one.

        Called after the first step on a mesh has put its tensors into the model.
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
        """Check before the first step, unless another step has put its tensors into these modules.

        A changed mode is handled later, when the step runs.
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
        """Record the objects that later calls compare by identity."""
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
        """Return all objects that must stay identical."""
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
        """Return the values of the objects of :meth:`_glance`, by name."""
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
        """Return the step for the present values. Raises ModelChanged if there is none."""
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
        """Compile a step for the present mode, and warn with the time that it took."""
        started = time.perf_counter()
        with torch.enable_grad():
            made = self._of_mode()
        took = f"{time.perf_counter() - started:.1f} s"
        _warn("ModeCompiled", f"{what}: compiled a program for this mode, {took}")
        return made

    def _traced_same(self, what: str) -> bool:
        """Trace again, and return True, with a warning, if the program is the same."""
        started = time.perf_counter()
        try:
            with torch.enable_grad():
                same = self._is_same()
        except ShardcError as error:
            raise ModelChanged(changes=what, where=error.where) from error
        if same:
            took = f"{time.perf_counter() - started:.1f} s"
            text = f"{what}: traced again in {took}, with the same program, which runs no Python"
            _warn("ModelTracedAgain", text)
        return same


def _warn(identity: str, text: str) -> None:
    """Warn at the user's line."""
    warn_at(identity, text, ModelChangeWarning, caller_line()[0])


def _attribute(name: str) -> str:
    """Return ``counts`` for ``counts['calls']``."""
    return name.partition("[")[0]


def _is_mode(key: tuple[str, str]) -> bool:
    return key[1] == "training"


def _may_change(key: tuple[str, str]) -> bool:
    """Return True if a change matters only through the program, so that another trace can decide."""
    held = ("_parameters", "_buffers", "_modules", "param_groups")
    return _attribute(key[1]) not in held and not key[1].endswith(".dtype")
