"""Prices in forked children, while this process does something else: of programs with few layers, and of a
plan that may be asked for next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from shardc.cost.cluster.cluster import Cluster
from shardc.passes.search.layered import LayeredCuts
from shardc.passes.search.solver import ask
from shardc.planning.candidates import Candidate
from shardc.planning.depth.shallow import Periods
from shardc.planning.price import Priced
from shardc.runtime.report.logs import TIMING
from shardc.workers.forked import Forked, ForkedServer
from shardc.workers.process import Ended

_Of = TypeVar("_Of")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Asked:
    """A plan's program with few layers, whose price is asked for.

    ``options``: other options of ``compile_step``. ``verify``: whether its passes are verified. ``layered``:
    result of the search for the plan, if it was searched. ``cluster``: whose links decide.
    """

    candidate: Candidate
    periods: Periods
    options: Mapping[str, object] = field(default_factory=dict)
    verify: bool = True
    layered: LayeredCuts | None = None
    cluster: Cluster | None = None


class Beside:
    """Children that have captured a model's versions with few layers, and price plans of these.

    Args:
        price: Returns the price of a program. Children call it with what this process had read before.
        capture: Captures a version; its result is not used. Children call it at once.
        versions: Periods of equal layers of each version.
    """

    def __init__(
        self,
        price: Callable[[Asked], Priced],
        capture: Callable[[Periods], object],
        versions: Sequence[Periods],
    ) -> None:
        self._price = price
        count = min(ask.MOST, len(versions))
        self._children: list[ForkedServer[Sequence[Asked], list[Priced]]] = []
        """Each of them has captured every ``count``-th version."""
        for first in range(count):
            begin = partial(_each, capture, versions[first::count])
            self._children.append(ForkedServer(partial(_each, price), begin))
        self._begun: dict[Hashable, Forked[object]] = {}

    def prices(self, asked: Sequence[Asked], more: Sequence[Asked] = ()) -> list[Priced]:
        """Return prices in order. Raises what a compile raises.

        ``asked``: programs of the versions that children captured, in the same order. ``more``: other
        programs, which this process prices meanwhile.
        """
        count = len(self._children)
        parts = [asked[first::count] for first in range(count)]
        found: dict[int, Priced] = {}
        with ExitStack() as stack:
            stack.callback(self._end_waiting)
            for child, part in zip(self._children, parts, strict=True):
                with suppress(Ended):  # options of a user may be what cannot be sent
                    if child.is_alive:
                        child.ask(part)
            own = _each(self._price, more)
            for first, part in enumerate(parts):
                found |= zip(range(first, len(asked), count), self._answer(first, part), strict=True)
        return [*(found[number] for number in range(len(asked))), *own]

    def begin(self, functions: Mapping[Hashable, Callable[[], object]]) -> None:
        """Begin to call functions, each in a child of its own, for a later :meth:`take`.

        As many run as there are cores, the first ones. Children of functions that are not named end.
        """
        for key in self._begun.keys() - functions.keys():
            self._begun.pop(key).end()
        for key, function in functions.items():
            if key not in self._begun and sum(child.is_busy for child in self._begun.values()) < ask.MOST:
                self._begun[key] = Forked(function)

    def take(self, key: Hashable) -> object:
        """Wait for the result of what :meth:`begin` began; None if it began nothing, or has no result."""
        child = self._begun.pop(key, None)
        if child is None:
            return None
        try:
            return child.result(lambda: False)
        except Ended as error:
            TIMING.debug("plan: a child did not price a plan: %s", error)
            return None

    def end(self) -> None:
        """End the children. Prices are then made in this process."""
        for child in (*self._children, *self._begun.values()):
            child.end()
        self._begun.clear()

    def _answer(self, number: int, asked: Sequence[Asked]) -> list[Priced]:
        """Return a child's answer, or, if it has none, that of this process."""
        try:
            if self._children[number].is_asked:
                return self._children[number].result(lambda: False)
        except Ended as error:
            TIMING.debug("plan: a child did not price a program: %s", error)
        return _each(self._price, asked)

    def _end_waiting(self) -> None:
        """End children whose answer nobody has read."""
        for child in self._children:
            if child.is_asked:
                child.end()


def _each(of: Callable[[_Of], _T], each: Iterable[_Of]) -> list[_T]:
    return [of(one) for one in each]
