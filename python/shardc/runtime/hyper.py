"""Hyperparameters of a step: numbers that may change from step to step, such as the learning rate."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from difflib import get_close_matches
from typing import Any

import torch

from .errors import HyperparameterMismatch


class Hyperparameters(MutableMapping[str, float]):
    """The numbers by name (``group0.lr``), taken from a bound optimizer's ``param_groups`` if there is one.

    ``entries`` and ``baked`` are those of the manifest. Unknown names raise HyperparameterMismatch.
    """

    def __init__(self, entries: list[dict[str, Any]], baked: list[dict[str, Any]]) -> None:
        self._entries = {e["name"]: e for e in entries}
        self._baked = baked
        self._values = {e["name"]: float(e["value"]) for e in entries}
        self._optimizer: Any = None

    def __getitem__(self, name: str) -> float:
        return self._values[self._known(name)]

    def __setitem__(self, name: str, value: float) -> None:
        self._values[self._known(name)] = float(value)

    def __delitem__(self, name: str) -> None:
        raise HyperparameterMismatch(
            f"hyperparameter {name!r} can't be deleted", name, "set it to another value"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def bind(self, optimizer: Any) -> None:
        """Read the numbers from this optimizer's ``param_groups`` before each step, as its schedulers set them."""
        self._optimizer = optimizer
        self._read()

    def at_step(self, step: int) -> dict[str, float]:
        """The numbers for step ``step``, counted from 0. Raises HyperparameterMismatch if a baked setting changed."""
        if self._optimizer is not None:
            self._read()
            self._optimizer._opt_called = True  # torch's schedulers warn unless the optimizer has stepped
        first = {n: e["first_step"] for n, e in self._entries.items() if e.get("first_step") is not None}
        return {**self._values, **first} if step == 0 else self._values

    def _known(self, name: str) -> str:
        if name in self._values:
            return name
        near = get_close_matches(name, self._values, 3) or list(self._values)
        raise HyperparameterMismatch(
            f"the program has no hyperparameter {name!r}",
            name,
            f"one of {', '.join(near) or 'none: it has none'}",
        )

    def _read(self) -> None:
        groups = self._optimizer.param_groups
        for name, entry in self._entries.items():
            held = self._held(groups, entry)
            self._values[name] = float(held if entry.get("index") is None else held[entry["index"]])
        for entry in self._baked:
            held, baked = _plain(self._held(groups, entry)), entry["value"]
            if held != baked:
                name = f"group{entry['group']}.{entry['key']}"
                raise HyperparameterMismatch(
                    f"{name} is now {held!r}; the program was compiled with {baked!r}, as a constant", name,
                    "set it back, or compile again with the new value",
                )  # fmt: skip

    def _held(self, groups: list[dict[str, Any]], entry: dict[str, Any]) -> Any:
        try:
            return groups[entry["group"]][entry["key"]]
        except (IndexError, KeyError):
            name = f"group{entry['group']}.{entry['key']}"
            raise HyperparameterMismatch(
                f"the optimizer has no {name}", name, "bind an optimizer like the one that was compiled"
            ) from None


def _plain(value: Any) -> Any:
    """A setting as the manifest holds it."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
