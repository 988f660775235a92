"""Each call of a rank's step: what it is, as text, and how long it took.

A call's time begins where the call before it ended, so that it has the interpreter's and that of tensors that
were given back in between, and the times of all calls are that of the program.
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
"""What a step does before and after its program."""
_FACTORIES = ("kernel", "kernels", "empty")


class Call(NamedTuple):
    """What is called with which types, how long it took, and of a collective the mesh axes that it spans."""

    text: str
    seconds: float
    axes: tuple[str, ...] = ()


@dataclass
class Calls:
    """The calls of one step, in order. ``seen`` is called before and behind each of them."""

    found: list[Call] = field(default_factory=list)
    seen: Callable[[], None] | None = None
    _began: float = 0.0

    @contextmanager
    def of(self, names: dict[str, object]) -> Iterator[Calls]:
        """Note what a program with these globals calls inside of the block."""
        known = {name: value for name, value in names.items() if is_called(name, value, names)}
        names.update({name: self.noted(called_name(name, value), value) for name, value in known.items()})
        try:
            yield self
        finally:
            names.update(known)

    def program(self, step: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
        """The program's function, whose first call begins with it."""

        def run(*args: object) -> tuple[Tensor, ...]:
            self._began = time.perf_counter()
            return step(*args)

        return run

    def rank(self, rank: Rank) -> Rank:
        """The same rank with its collectives noted."""
        return cast(Rank, _NotedRank(rank, self))

    def noted(self, name: str, function: object) -> Callable[..., object]:
        """``function`` with a note of each call."""
        assert callable(function)

        def call(*args: object, **kwargs: object) -> object:
            self.begin()
            made = function(*args, **kwargs)
            self.end(name, args, kwargs)
            return made

        return call

    def begin(self) -> None:
        """Note that a call begins."""
        if self.seen is not None:
            self.seen()

    def end(self, name: str, args: tuple[object, ...] = (), kwargs: Mapping[str, object] = {}) -> None:
        """Note that a call ended now."""
        seconds = time.perf_counter() - self._began
        self.add(call_text(name, args, kwargs), seconds, kwargs)

    def add(self, text: str, seconds: float, kwargs: Mapping[str, object] = {}) -> None:
        """Note a call; the next begins now. ``axes`` among ``kwargs`` are those of a collective."""
        axes = cast(tuple[tuple[str, int, int], ...], kwargs.get("axes", ()))
        self.found.append(Call(text, seconds, tuple(name for name, _, _ in axes)))
        if self.seen is not None:
            self.seen()
        self._began = time.perf_counter()

    def waited(self, text: str, kwargs: Mapping[str, object]) -> None:
        """Note that a collective's end was waited for until now."""
        self.add(f"wait for {text}", time.perf_counter() - self._began, kwargs)


def is_called(name: str, value: object, names: Mapping[str, object]) -> bool:
    """Whether a global of a program is an operator or a kernel."""
    if isinstance(value, OpOverload):
        return True
    if not isinstance(value, FunctionType) or name in _FACTORIES:
        return False
    own = next((v for n, v in names.items() if n.startswith("step") and isinstance(v, FunctionType)), None)
    return own is None or value.__code__.co_filename != own.__code__.co_filename


def called_name(name: str, value: object) -> str:
    """``aten.mm.default``, or ``kernel gelu_3``."""
    return str(value) if isinstance(value, OpOverload) else f"kernel {name}"


def call_text(name: str, args: tuple[object, ...], kwargs: Mapping[str, object] = {}) -> str:
    """A call with the types of its tensors: ``aten.mm.default(float32[4, 8], float32[8, 2; 1, 8])``."""
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
    """How many ranks parts of mesh axes span."""
    count = 1
    for _, _, size in cast(tuple[tuple[str, int, int], ...], axes):
        count *= size
    return count


class _NotedRank:
    """A rank whose collectives are noted: their start, and the wait for their end."""

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
