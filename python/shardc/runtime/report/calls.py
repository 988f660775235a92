"""Calls of a rank's step, as text, with their times.

A call's time starts at the end of the call before. So it includes the interpreter's time and that of freeing
tensors in between, and the times of all calls add up to that of the program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import NamedTuple, cast

from torch import Tensor

from ..comm.collectives import Handle, Message, Rank
from ..first_run import type_text
from ..torch_private import OpOverload

_BETWEEN_ALL = "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"
COLLECTIVES = frozenset((*_BETWEEN_ALL, "permute", "exchange", "send", "receive"))
AROUND = "around a step"
"""Name of the time that a step takes before and after its program."""
_FACTORIES = ("kernel", "kernels", "empty")


class Call(NamedTuple):
    """Call with the types of its arguments as text, its time, and for a collective its mesh axes."""

    text: str
    seconds: float
    axes: tuple[str, ...] = ()


@dataclass
class Calls:
    """Calls of one step, in order. ``seen``: a function to call before and after each of them."""

    found: list[Call] = field(default_factory=list)
    seen: Callable[[], None] | None = None
    _began: float = 0.0

    @contextmanager
    def of(self, names: dict[str, object]) -> Iterator[Calls]:
        """Context that records the calls of a program with these globals."""
        known = {name: value for name, value in names.items() if is_called(name, value, names)}
        names.update({name: self.noted(called_name(name, value), value) for name, value in known.items()})
        try:
            yield self
        finally:
            names.update(known)

    def program(self, step: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
        """Wrap the program's function, so that its first call's time starts with it."""

        def run(*args: object) -> tuple[Tensor, ...]:
            self._began = time.perf_counter()
            return step(*args)

        return run

    def rank(self, rank: Rank) -> Rank:
        """Wrap a rank, so that its collectives are recorded."""
        return cast(Rank, _NotedRank(rank, self))

    def noted(self, name: str, function: object) -> Callable[..., object]:
        """Wrap ``function``, so that each call is recorded."""
        assert callable(function)

        def call(*args: object, **kwargs: object) -> object:
            self.begin()
            made = function(*args, **kwargs)
            self.end(name, args, kwargs)
            return made

        return call

    def begin(self) -> None:
        """Mark the start of a call."""
        if self.seen is not None:
            self.seen()

    def end(self, name: str, args: tuple[object, ...] = (), kwargs: Mapping[str, object] = {}) -> None:
        """Record a call that ended now."""
        seconds = time.perf_counter() - self._began
        self.add(call_text(name, args, kwargs), seconds, kwargs)

    def add(self, text: str, seconds: float, kwargs: Mapping[str, object] = {}) -> None:
        """Record a call; the next one starts now. ``kwargs["axes"]``: the axes of a collective."""
        axes = cast(tuple[tuple[str, int, int], ...], kwargs.get("axes", ()))
        self.found.append(Call(text, seconds, tuple(name for name, _, _ in axes)))
        if self.seen is not None:
            self.seen()
        self._began = time.perf_counter()

    def waited(self, text: str, kwargs: Mapping[str, object]) -> None:
        """Record a wait for a collective that ended now."""
        self.add(f"wait for {text}", time.perf_counter() - self._began, kwargs)


def is_called(name: str, value: object, names: Mapping[str, object]) -> bool:
    """Return True if a global of a program is an operator or a kernel."""
    if isinstance(value, OpOverload):
        return True
    if not isinstance(value, FunctionType) or name in _FACTORIES:
        return False
    own = next((v for n, v in names.items() if n.startswith("step") and isinstance(v, FunctionType)), None)
    return own is None or value.__code__.co_filename != own.__code__.co_filename


def called_name(name: str, value: object) -> str:
    """Return the name of a call, such as ``aten.mm.default`` or ``kernel gelu_3``."""
    return str(value) if isinstance(value, OpOverload) else f"kernel {name}"


def call_text(name: str, args: tuple[object, ...], kwargs: Mapping[str, object] = {}) -> str:
    """Format a call with types of tensors, as ``aten.mm.default(float32[4, 8], float32[8, 2; 1, 8])``."""
    words = [_word(arg) for arg in args]
    words += [f"{key}={_word(value)}" for key, value in kwargs.items() if key != "axes"]
    over = f" over {_ranks(kwargs['axes'])}" if "axes" in kwargs else ""
    return f"{name}({', '.join(words)}){over}"


def _word(value: object) -> str:
    if isinstance(value, Tensor):
        strides = None if value.is_contiguous() else value.stride()
        return type_text(value.shape, value.dtype, strides)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_word, value))}]"
    return "device" if type(value).__name__ == "device" else str(value)


def _ranks(axes: object) -> int:
    """Return how many ranks (sub-)axes span."""
    count = 1
    for _, _, size in cast(tuple[tuple[str, int, int], ...], axes):
        count *= size
    return count


class _NotedRank:
    """Rank that records the start of its collectives, and the waits for them."""

    def __init__(self, rank: Rank, calls: Calls) -> None:
        self._rank, self._calls = rank, calls

    def __getattr__(self, name: str) -> object:
        value = getattr(self._rank, name)
        if name in ("finish_sends", "finish_all_sends"):
            return self._calls.noted(name, value)
        return self._started(name, value) if name in COLLECTIVES else value

    def _started(self, name: str, function: Callable[..., Handle | Message | None]) -> Callable[..., object]:
        def start(*args: object, **kwargs: object) -> object:
            self._calls.begin()
            handle = function(*args, **kwargs)
            sizes = {k: v for k, v in kwargs.items() if k not in ("source", "target", "to", "root")}
            text = call_text(name, args, sizes)
            self._calls.end(name, args, sizes)
            return None if handle is None else _NotedHandle(handle, text, sizes, self._calls)

        return start


class _NotedHandle:
    def __init__(
        self, handle: Handle | Message, text: str, kwargs: Mapping[str, object], calls: Calls
    ) -> None:
        self._handle, self._text, self._kwargs, self._calls = handle, text, kwargs, calls

    def wait(self) -> object:
        self._calls.begin()
        made = self._handle.wait()
        self._calls.waited(self._text, self._kwargs)
        return made
