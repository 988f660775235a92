"""Hyperparameters of a step: numbers that may change between steps, such as the learning rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from difflib import get_close_matches

import torch
from torch.optim import Optimizer

from .arguments import in_words, number_given
from .check import Json
from .checkpoint.objects import decode, encode
from .errors import HyperparameterMismatch, StateNotSaved, WrongArgument
from .report.messages import StateWarning, warn
from .torch_private import mark_stepped

IMPLEMENTATION = frozenset(("foreach", "fused", "capturable", "differentiable"))
"""Settings that select an implementation in PyTorch's optimizers, and do not change the mathematics."""


class Hyperparameters(MutableMapping[str, float]):
    """Hyperparameters by name (``group0.lr``), stored in the bound optimizer's ``param_groups``, if any.

    ``entries`` and ``baked`` are fields of the manifest. Unknown names raise HyperparameterMismatch.
    """

    def __init__(self, entries: list[Json], baked: list[Json]) -> None:
        self._entries = {e["name"]: e for e in entries}
        self._baked = baked
        self._values = {e["name"]: float(e["value"]) for e in entries}
        self._own_keys = {e["key"] for e in (*entries, *baked)}
        self._optimizer: Optimizer | None = None
        self._is_restored = False

    def __getitem__(self, name: str) -> float:
        entry = self._known(name)
        if self._optimizer is None:
            return self._values[name]
        held = self._group(entry)[entry["key"]]
        return float(held if entry.get("index") is None else held[entry["index"]])

    def __setitem__(self, name: str, value: float) -> None:
        entry, number = self._known(name), number_given(value, name)
        self._values[name] = number
        if self._optimizer is not None:
            self._write(entry, number)

    def __delitem__(self, name: str) -> None:
        what = f"hyperparameter {name!r} can't be deleted"
        raise HyperparameterMismatch(what, name, "set it to another value")

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def bind(self, optimizer: Optimizer) -> None:
        """Use this optimizer's numbers from now on, as its schedulers set them.

        After a ``restore`` without an optimizer, the restored numbers are written to the first bound one.
        """
        if not isinstance(optimizer, Optimizer):
            raise WrongArgument(
                f"the optimizer is {in_words(optimizer)}, not one of torch.optim", "optimizer"
            )
        self._optimizer = optimizer
        self._check()
        if self._is_restored:
            self.update(self._values)
        self._is_restored = False

    def restore(self, values: Mapping[str, float], packed: Sequence[Json] = ()) -> None:
        """Set a checkpoint's numbers, in the bound optimizer or, without one, in the next to be bound.

        ``packed``: the result of :meth:`packed`. It restores settings that schedulers keep in groups, too.
        """
        for group, saved in zip(
            self._optimizer.param_groups if self._optimizer else (), packed, strict=False
        ):
            for key in saved.keys() - self._own_keys:
                _set(group, key, decode(saved[key], {}))
        self.update(values)
        self._is_restored = self._optimizer is None

    def packed(self) -> list[Json]:
        """Return the settings in the bound optimizer's groups, for a checkpoint's record."""
        return [_packed(group) for group in self._optimizer.param_groups] if self._optimizer else []

    def check_packed(self, packed: Sequence[Json]) -> None:
        """Raise HyperparameterMismatch if a checkpoint has another value for a constant of the program."""
        for entry in self._baked:
            group, key = entry["group"], entry["key"]
            if group < len(packed) and key in packed[group] and key not in IMPLEMENTATION:
                saved = json_value(decode(packed[group][key], {}))
                if saved != entry["value"]:
                    name = f"group{group}.{key}"
                    what = f"training had {name} = {saved!r}; the program has {entry['value']!r}, a constant"
                    hint = f"compile with an optimizer that has {key}={saved!r}"
                    raise HyperparameterMismatch(what, name, hint)

    def warn_of_scheduler(self) -> None:
        """Warn if the bound optimizer has a scheduler, because its state will not be saved."""
        if self._optimizer is not None and any("initial_lr" in g for g in self._optimizer.param_groups):
            what = "a scheduler changes the optimizer, but its state is not in the checkpoint"
            hint = 'pass objects={"scheduler": scheduler} to save_checkpoint and load_checkpoint'
            warn("SchedulerNotSaved", f"{what}\n  try: {hint}", StateWarning, 3)

    def begin_like(self, other: Hyperparameters) -> None:
        """Take the first step's numbers from another program of the same optimizer.

        This program was compiled later, when the optimizer already had its state.
        """
        for name in self._entries.keys() & other._entries.keys():
            first = other._entries[name].get("first_step")
            self._entries[name] = {**self._entries[name], "first_step": first}

    def at_step(self, step: int) -> dict[str, float]:
        """Return the numbers for ``step``, counted from 0.

        Raises HyperparameterMismatch if a setting changed that is a constant of the program.
        """
        if self._optimizer is not None:
            self._check()
            mark_stepped(self._optimizer)  # torch's schedulers warn unless the optimizer has stepped
        first = {n: e["first_step"] for n, e in self._entries.items() if e.get("first_step") is not None}
        return {**self, **first} if step == 0 else dict(self)

    def _known(self, name: str) -> Json:
        """Return the manifest's entry of a name. Raises HyperparameterMismatch, WrongArgument."""
        if not isinstance(name, str):
            raise WrongArgument(f"a hyperparameter's name is a string, not {in_words(name)}", "hyper")
        if name in self._entries:
            return self._entries[name]
        near = get_close_matches(name, self._entries, 3) or list(self._entries)
        hint = (
            f"use one of {', '.join(near)}" if near else "compile with an optimizer that has hyperparameters"
        )
        raise HyperparameterMismatch(f"the program has no hyperparameter {name!r}", name, hint)

    def _write(self, entry: Json, value: float) -> None:
        group, key, index = self._group(entry), entry["key"], entry.get("index")
        if index is None:
            _set(group, key, value)
        elif isinstance(group[key][index], torch.Tensor):
            group[key][index].fill_(value)
        else:
            group[key] = (*group[key][:index], value, *group[key][index + 1 :])

    def _check(self) -> None:
        """Raise HyperparameterMismatch if the optimizer lacks a number, or has another constant."""
        for entry in self._entries.values():
            self._group(entry)
        for entry in self._baked:
            held, baked = json_value(self._group(entry)[entry["key"]]), entry["value"]
            if held != baked:
                name = f"group{entry['group']}.{entry['key']}"
                what = f"{name} is now {held!r}; the program was compiled with {baked!r}, as a constant"
                raise HyperparameterMismatch(what, name, "set it back, or compile again with the new value")

    def _group(self, entry: Json) -> Json:
        """Return the bound optimizer's group with a number. Raises HyperparameterMismatch."""
        assert self._optimizer is not None
        groups, number, key = self._optimizer.param_groups, entry["group"], entry["key"]
        if number < len(groups) and key in groups[number]:
            return groups[number]
        name, hint = f"group{number}.{key}", "bind an optimizer like the one that was compiled"
        raise HyperparameterMismatch(f"the optimizer has no {name}", name, hint)


def _set(group: Json, key: str, value: object) -> None:
    """Set a group's number. A tensor is written in place, since there may be other references to it."""
    if isinstance(group.get(key), torch.Tensor):
        group[key].fill_(value)
    else:
        group[key] = value


def _packed(group: Json) -> Json:
    """Return a group's settings, without the user's objects that a checkpoint cannot hold."""
    found: Json = {}
    for key, value in group.items():
        if key != "params":
            with suppress(StateNotSaved):
                found[key] = encode(value.tolist() if isinstance(value, torch.Tensor) else value, [], key)
    return found


def is_json(value: object) -> bool:
    """Return True for values that JSON can represent without conversion."""
    return value is None or isinstance(value, bool | int | float | str)


def json_value(value: object) -> object:
    """Convert an optimizer's setting for JSON: tensors to numbers, tuples to lists, others by ``repr``."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [json_value(v) for v in value]
    return value if is_json(value) else repr(value)
