"""Calls of a program's functions, of which only the first of equal ones runs.

A pipeline's step calls the functions of its stages for each micro-batch. What such a call allocates and frees
depends on the forms of its arguments, and on which of them share memory.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import inf
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from shardc.backends.torch.memory.kinds import Block
from shardc.backends.torch.memory.ledger import Ledger
from shardc.backends.torch.memory.replay import Form, form_of
from shardc.runtime.comm.collectives import Rank
from shardc.runtime.torch_private import disable_current_modes, storage_address

META = torch.device("meta")
_NUMBER = "micro"
"""Start of the name of a function's second parameter if it is the number of a micro-batch."""


@dataclass(frozen=True)
class _Event:
    """Allocation or free of a block that a call makes, or free of a memory that it is given, by number."""

    number: int
    is_given: bool
    is_free: bool


@dataclass(frozen=True)
class _Result:
    """Result of a call: the argument ``given`` itself, or a tensor in the block ``made``."""

    form: Form
    made: int | None
    given: int | None


@dataclass(frozen=True)
class _Call:
    """Record of a call. ``made``: the blocks that it made. ``reads``: the line of its last read of each
    memory that it was given; None if it has none. ``emptied``: whether it emptied each of its lists.
    """

    made: Sequence[Block]
    reads: Sequence[int | None]
    emptied: Sequence[bool]
    events: Sequence[_Event]
    results: Sequence[_Result]


class Repeated:
    """Runs functions of a program, or repeats what the first of equal calls wrote into the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[Hashable, _Call | None] = {}

    def replace(self, program: dict[str, Any]) -> None:
        """Replace those functions of a program that get the number of a micro-batch."""
        for name, value in program.items():
            if isinstance(value, FunctionType) and _takes_number(value):
                program[name] = self._of(value)

    def _of(self, function: FunctionType) -> Callable[..., object]:
        def call(*given: object) -> object:
            key = _key(function, given)
            if key is None:
                return function(*given)
            if key not in self._known:
                results, self._known[key] = self._recorded(function, given)
                return results
            known = self._known[key]
            return function(*given) if known is None else self._again(known, given)

        return call

    def _recorded(self, function: FunctionType, given: Sequence[object]) -> tuple[object, _Call | None]:
        """Run a function. Return its results, and the record of the call; None if it cannot be repeated."""
        ledger, lists = self._ledger, [value for value in given if isinstance(value, list)]
        tensors = [weakref.ref(tensor) for tensor in _tensors(given)]
        blocks = [ledger.block(storage) for storage in _storages(given)]
        first, begin = len(ledger.blocks), len(ledger.log)
        results = function(*given)
        made = ledger.blocks[first:]
        numbers = {id(block): number for number, block in enumerate(made)}
        places = {id(block): number for number, block in enumerate(blocks) if block is not None}
        changes = [(block, size_bytes < 0) for block, size_bytes in ledger.log.since(begin)]
        found = _results(results, tensors, ledger, numbers)
        if found is None or any(block not in numbers and block not in places for block, _ in changes):
            return results, None
        events = [
            _Event(places.get(block, numbers.get(block, 0)), block in places, is_free)
            for block, is_free in changes
        ]
        kept = {result.made for result in found}
        if any(block.outlived == inf and number not in kept for number, block in enumerate(made)):
            return results, None  # something else keeps what it made
        lines = {line for *_, line in function.__code__.co_lines()}
        reads = [block.read if block is not None and block.read in lines else None for block in blocks]
        return results, _Call(list(map(copy, made)), reads, [not values for values in lists], events, found)

    def _again(self, known: _Call, given: Sequence[object]) -> tuple[Tensor, ...]:
        """Repeat a call: write its events into the ledger, and make its results."""
        ledger, tensors = self._ledger, list(_tensors(given))
        numbers = _numbers(tensors)
        blocks = [ledger.block(storage) for storage in _storages(given)]
        same = {r.given: tensors[r.given] for r in known.results if r.given is not None}
        held = defaultdict[int, list[Tensor]](list)
        while tensors:
            held[numbers.pop()].append(tensors.pop())
        lists = (value for value in given if isinstance(value, list))
        for values, is_emptied in zip(lists, known.emptied, strict=True):
            if is_emptied:
                values.clear()
        made = dict[int, Block]()
        for event in known.events:
            if event.is_given:
                held.pop(event.number)  # frees the memory, unless others hold it
            elif event.is_free:
                ledger.free(made[event.number])
            else:
                made[event.number] = ledger.make_like(known.made[event.number])
        for block, read in zip(blocks, known.reads, strict=True):
            if block is not None and read is not None:
                block.read = read
        with disable_current_modes():
            return tuple(_results_again(known.results, same, made, ledger))


def _takes_number(function: FunctionType) -> bool:
    code = function.__code__
    return code.co_argcount > 1 and code.co_varnames[1].startswith(_NUMBER)


def _tensors(given: Sequence[object]) -> Iterator[Tensor]:
    """Yield all tensors of a call's arguments, which stand alone or in lists."""
    for value in given:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, Tensor))


def _numbers(tensors: Iterable[Tensor]) -> list[int]:
    """Return the number of each tensor's memory, counted in order of appearance."""
    found: dict[int, int] = {}
    return [found.setdefault(storage_address(t.untyped_storage()), len(found)) for t in tensors]


def _storages(given: Sequence[object]) -> Iterator[torch.UntypedStorage]:
    """Yield the memories of a call's arguments in the order of their numbers."""
    seen = set[int]()
    for tensor in _tensors(given):
        storage = tensor.untyped_storage()
        if (address := storage_address(storage)) not in seen:
            seen.add(address)
            yield storage


def _key(function: FunctionType, given: Sequence[object]) -> Hashable | None:
    """Return what a call's memory depends on; None if an argument is of a type that is not known here."""
    parts = list[Hashable]()
    for number, value in enumerate(given):
        if isinstance(value, list):
            if not all(isinstance(item, Tensor) for item in value):
                return None
            parts.append(tuple(map(form_of, value)))
        elif isinstance(value, Tensor):
            parts.append(form_of(value))
        elif isinstance(value, Rank | int | float | None):
            parts.append(None if number < len(("rank", _NUMBER)) else value)
        else:
            return None
    return function, tuple(parts), tuple(_numbers(_tensors(given)))


def _results(
    results: object,
    tensors: Sequence[weakref.ref[Tensor]],
    ledger: Ledger,
    numbers: Mapping[int, int],
) -> list[_Result] | None:
    """Return a call's results: arguments in ``tensors``, or in blocks with ``numbers``; None for others."""
    if not isinstance(results, tuple) or not all(isinstance(result, Tensor) for result in results):
        return None
    found = list[_Result]()
    for result in results:
        same = next((number for number, ref in enumerate(tensors) if ref() is result), None)
        block = ledger.block(result.untyped_storage())
        made = None if block is None else numbers.get(id(block))
        if same is None and made is None and block is not None:
            return None  # a view of an argument
        found.append(_Result(form_of(result), made, same))
    return found


def _results_again(
    results: Sequence[_Result], same: Mapping[int, Tensor], made: Mapping[int, Block], ledger: Ledger
) -> Iterator[Tensor]:
    storages: dict[int, torch.UntypedStorage] = {}
    for result in results:
        if result.given is not None:
            yield same[result.given]
            continue
        number = result.made
        storage = storages.get(number) if number is not None else None
        if storage is None:
            storage = torch.UntypedStorage(0 if number is None else made[number].size_bytes, device=META)
            if number is not None:
                storages[number] = storage
                ledger.keep(storage, made[number])
        shape, strides, offset, dtype = result.form
        yield torch.empty(0, dtype=dtype, device=META).set_(storage, offset, shape, strides)
