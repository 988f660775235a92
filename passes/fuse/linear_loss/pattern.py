"""Pattern language over the calls of a block, and a matcher for it.

A pattern is an expression of calls, or a name, which stands for one value wherever it occurs (``_``: any).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from torch_mlir import ir

from shardc.dialects.aten.call import CallReader, IntValue, OpCall, leaves
from shardc.dialects.aten.types import TensorType
from shardc.passes.fuse.reading.values import maker, readers, target_of, type_of

ANY = "_"


@dataclass(frozen=True)
class Apply:
    """Pattern of a call of ``targets`` that passes ``test``, whose tensors match ``operands``.

    ``swaps``: True if the tensors may also match in reverse order.
    """

    targets: tuple[str, ...]
    operands: tuple[Pattern, ...]
    test: Callable[[OpCall], bool] = lambda _: True
    swaps: bool = False


@dataclass(frozen=True)
class As:
    """Pattern of a value that matches ``inner``; the value is bound to ``name``."""

    name: str
    inner: Pattern


@dataclass(frozen=True)
class Either:
    """Pattern of a value that matches one of ``forms``."""

    forms: tuple[Pattern, ...]


@dataclass(frozen=True)
class Behind:
    """Pattern of a value that any number of calls of ``targets`` make from a value that matches ``inner``."""

    targets: frozenset[str]
    inner: Pattern


@dataclass(frozen=True)
class Seen:
    """Pattern of a value that ``through`` maps to a value that matches ``inner``."""

    through: Callable[[ir.Value], ir.Value]
    inner: Pattern


@dataclass(frozen=True)
class Typed:
    """Pattern of a value whose type ``test`` accepts; ``test`` also gets the type of the value ``of``."""

    of: str
    test: Callable[[TensorType, TensorType], bool]


@dataclass(frozen=True)
class Later:
    """The pattern that ``pattern()`` returns, for recursive patterns."""

    pattern: Callable[[], Pattern]


Pattern: TypeAlias = "str | Apply | As | Either | Behind | Seen | Typed | Later"


@dataclass(frozen=True)
class Match:
    """Bindings of names to ``values``, and the matched calls, those of operands first."""

    values: dict[str, ir.Value]
    ops: tuple[ir.Operation, ...] = ()

    def bound(self, name: str, value: ir.Value) -> Iterator[Match]:
        """Yield this match with ``name`` bound to ``value``; nothing if it is bound to another value."""
        if name == ANY or self.values.get(name, value) == value:
            yield self if name == ANY else replace(self, values={**self.values, name: value})

    def named(self, **values: ir.Value | None) -> Match:
        """Return this match with more names; values of None are skipped."""
        return replace(self, values=self.values | {name: v for name, v in values.items() if v is not None})

    def seen(self, op: ir.Operation) -> Match:
        return replace(self, ops=tuple(dict.fromkeys((*self.ops, op))))


@dataclass(frozen=True)
class Matcher:
    """Matcher of values of one function."""

    reader: CallReader

    def match(self, pattern: Pattern, value: ir.Value, match: Match) -> Iterator[Match]:
        """Yield all ways in which ``value`` matches ``pattern``, as extensions of ``match``."""
        match pattern:
            case str():
                yield from match.bound(pattern, value)
            case As(name, inner):
                for found in self.match(inner, value, match):
                    yield from found.bound(name, value)
            case Either(forms):
                for form in forms:
                    yield from self.match(form, value, match)
            case Seen(through, inner):
                yield from self.match(inner, through(value), match)
            case Later(of):
                yield from self.match(of(), value, match)
            case Typed(of, test):
                if test(type_of(value), type_of(match.values[of])):
                    yield match
            case Behind(targets, inner):
                yield from self.match(inner, value, match)
                op = maker(value)
                if op is not None and target_of(op) in targets:
                    yield from self.match(pattern, op.operands[0], match.seen(op))
            case Apply():
                yield from self._apply(pattern, value, match)

    def _apply(self, pattern: Apply, value: ir.Value, match: Match) -> Iterator[Match]:
        op = maker(value)
        if op is None or target_of(op) not in pattern.targets:
            return
        call = self.reader.read(op)
        given = call.operands
        if any(isinstance(leaf, IntValue) for leaf in leaves(call.spec.args)):
            return
        if len(given) < len(pattern.operands) or not pattern.test(call.spec):
            return
        for operands in (given, given[::-1]) if pattern.swaps else (given,):
            yield from self._operands(pattern.operands, operands, match.seen(op))

    def _operands(
        self, patterns: tuple[Pattern, ...], values: list[ir.Value], match: Match
    ) -> Iterator[Match]:
        if not patterns:
            yield match
            return
        for found in self.match(patterns[0], values[0], match):
            yield from self._operands(patterns[1:], values[1:], found)

    def made_of(self, name: str, pattern: Pattern, source: str, match: Match) -> list[Match]:
        """Return the matches that bind ``name`` to a value computed from ``source``, of form ``pattern``."""
        last = _targets(pattern)
        between = frozenset(
            t for form in _calls(pattern) for inner in form.operands for t in _targets(inner, True)
        )
        found, waiting = dict[ir.Value, None](), [match.values[source]]
        while waiting:
            for op in readers(waiting.pop()):
                target = target_of(op)
                if target in last and op.results[0] not in found:
                    found[op.results[0]] = None
                if target in between:
                    waiting.append(op.results[0])
        matches = (next(self.match(As(name, pattern), value, match), None) for value in found)
        return [made for made in matches if made is not None]


def _calls(pattern: Pattern) -> list[Apply]:
    """Return the calls whose result may be a value of ``pattern``."""
    match pattern:
        case Apply():
            return [pattern]
        case Either(forms):
            return [found for form in forms for found in _calls(form)]
        case As(_, inner) | Behind(_, inner) | Seen(_, inner):
            return _calls(inner)
    return []


def _targets(pattern: Pattern, within: bool = False) -> frozenset[str]:
    """Return the targets of these calls, and of all calls behind their operands if ``within``."""
    found = set(pattern.targets if isinstance(pattern, Behind) else ())
    for form in _calls(pattern):
        found.update(form.targets)
        if within:
            found.update(target for inner in form.operands for target in _targets(inner, True))
    return frozenset(found)
