"""Body of a function under construction: scopes of lines with their indices.

A value that does not depend on a loop's index is written before the loop, so a row's scale is loaded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from shardc.backends.triton.emit.text import Expr, Names

INDENT = "    "
INLINE = 48
"""Maximum length of a value that is inlined into the single expression that uses it."""


@dataclass(eq=False)
class Scope:
    """Lines at one depth. ``has``: indices that are available. ``known``: computed values by any key."""

    has: frozenset[str]
    lines: list[str] = field(default_factory=list)
    known: dict[object, Expr] = field(default_factory=dict)
    place: str | None = None


@dataclass(eq=False)
class Code:
    """Code of a function: scopes, outermost first, and its names."""

    names: Names
    scopes: list[Scope] = field(default_factory=lambda: [Scope(frozenset())])

    def line(self, text: str) -> None:
        """Append a line to the innermost scope."""
        self.scopes[-1].lines.append(text)

    def add_index(self, tag: str) -> None:
        """Make an index available in the innermost scope."""
        self.scopes[-1].has |= {tag}

    @contextmanager
    def block(self, head: str, tags: frozenset[str] = frozenset()) -> Iterator[None]:
        """Context that writes a loop with ``head``. Its body has the additional indices ``tags``."""
        self.scopes.append(Scope(self.scopes[-1].has | tags))
        yield
        inside = self.scopes.pop()
        self.line(head)
        self.scopes[-1].lines += [INDENT + line for line in inside.lines]

    def name(self, wanted: str, value: Expr, place: str | None = None) -> Expr:
        """Assign ``value`` to a new name, in the outermost scope that has its indices.

        A comment has ``place``, the user's source line, if it differs from that of the line before.
        """
        if value.literal is not None or value.text.isidentifier():
            return value
        name = self.names.new(wanted)
        scope = self._scope(value)
        if place and place != scope.place:
            scope.place = place
            scope.lines.append(f"# {place}")
        scope.lines.append(f"{name} = {value.text}")
        return Expr(name, value.type, value.vary)

    def find(self, key: object) -> Expr | None:
        for scope in reversed(self.scopes):
            if key in scope.known:
                return scope.known[key]
        return None

    def remember(self, key: object, value: Expr) -> Expr:
        self._scope(value).known[key] = value
        return value

    def _scope(self, value: Expr) -> Scope:
        return next(s for s in self.scopes if value.vary <= s.has)

    @property
    def text(self) -> list[str]:
        """Return all lines of the function's body."""
        return self.scopes[0].lines
