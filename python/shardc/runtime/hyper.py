"""Hyperparameters of a step: numbers that may change from step to step, such as the learning rate."""

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
"""Settings that choose code of PyTorch's optimizers, and no mathematics."""


class Hyperparameters(MutableMapping[str, float]):
    """The numbers by name (``group0.lr``): those in a bound optimizer's ``param_groups``, if there is one.

    ``entries`` and ``baked`` are those of the manifest. Unknown names raise HyperparameterMismatch.
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
        """Take the numbers from this optimizer from now on, as its schedulers set them.

        After ``restore`` without an optimizer, the first one that is bound is given the restored numbers.
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

        ``packed`` is what :meth:`packed` gave: what schedulers keep in groups is put back, too.
        """
        for group, saved in zip(
            self._optimizer.param_groups if self._optimizer else (), packed, strict=False
        ):
            for key in saved.keys() - self._own_keys:
                _set(group, key, decode(saved[key], {}))
        self.update(values)
        self._is_restored = self._optimizer is None

    def packed(self) -> list[Json]:
        """The settings in the bound optimizer's groups, as a checkpoint's record holds them."""
        return [_packed(group) for group in self._optimizer.param_groups] if self._optimizer else []

    def check_packed(self, packed: Sequence[Json]) -> None:
        """Raises HyperparameterMismatch if training had another setting that is a constant of the program."""
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
        """Warn if a scheduler works on the bound optimizer whose state will not be saved."""
        if self._optimizer is not None and any("initial_lr" in g for g in self._optimizer.param_groups):
            what = "a scheduler works on the optimizer, and its state is not in the checkpoint"
            hint = 'pass objects={"scheduler": scheduler} to save_checkpoint and load_checkpoint'
            warn("SchedulerNotSaved", f"{what}\n  try: {hint}", StateWarning, 3)

    def begin_like(self, other: Hyperparameters) -> None:
        """Take the numbers of the very first step from those of another program of the optimizer's: where
        this one was made, a step had given the optimizer its state.
        """
        for name in self._entries.keys() & other._entries.keys():
            first = other._entries[name].get("first_step")
            self._entries[name] = {**self._entries[name], "first_step": first}

    def at_step(self, step: int) -> dict[str, float]:
        """The numbers for ``step``, from 0 on. Raises HyperparameterMismatch if a baked setting changed."""
        if self._optimizer is not None:
            self._check()
            mark_stepped(self._optimizer)  # torch's schedulers warn unless the optimizer has stepped
        first = {n: e["first_step"] for n, e in self._entries.items() if e.get("first_step") is not None}
        return {**self, **first} if step == 0 else dict(self)

    def _known(self, name: str) -> Json:
        """The manifest's entry."""
        if not isinstance(name, str):
            raise WrongArgument(f"a hyperparameter's name is text, not {in_words(name)}", "hyper")
        if name in self._entries:
            return self._entries[name]
        near = get_close_matches(name, self._entries, 3) or list(self._entries)
        hint = f"one of {', '.join(near) or 'none: it has none'}"
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
        """Raises HyperparameterMismatch if the optimizer lacks a number, or a baked setting changed."""
        for entry in self._entries.values():
            self._group(entry)
        for entry in self._baked:
            held, baked = json_value(self._group(entry)[entry["key"]]), entry["value"]
            if held != baked:
                name = f"group{entry['group']}.{entry['key']}"
                what = f"{name} is now {held!r}; the program was compiled with {baked!r}, as a constant"
                raise HyperparameterMismatch(what, name, "set it back, or compile again with the new value")

    def _group(self, entry: Json) -> Json:
        """The group of the bound optimizer that holds a number. Raises HyperparameterMismatch."""
        assert self._optimizer is not None
        groups, number, key = self._optimizer.param_groups, entry["group"], entry["key"]
        if number < len(groups) and key in groups[number]:
            return groups[number]
        name, hint = f"group{number}.{key}", "bind an optimizer like the one that was compiled"
        raise HyperparameterMismatch(f"the optimizer has no {name}", name, hint)


def _set(group: Json, key: str, value: object) -> None:
    """A tensor is written in place, because others may hold it."""
    if isinstance(group.get(key), torch.Tensor):
        group[key].fill_(value)
    else:
        group[key] = value


def _packed(group: Json) -> Json:
    """A group's settings; what a checkpoint does not hold is the user's own, and no number."""
    found: Json = {}
    for key, value in group.items():
        if key != "params":
            with suppress(StateNotSaved):
                found[key] = encode(value.tolist() if isinstance(value, torch.Tensor) else value, [], key)
    return found


def is_json(value: object) -> bool:
    """Whether JSON has such values."""
    return value is None or isinstance(value, bool | int | float | str)


def json_value(value: object) -> object:
    """A setting of an optimizer as JSON holds it: tensors as numbers, tuples as lists, others by repr."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [json_value(v) for v in value]
    return value if is_json(value) else repr(value)
