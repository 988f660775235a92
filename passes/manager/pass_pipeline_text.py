"""Parser of pass pipelines in MLIR's syntax.

    dist-propagate{max-iterations=4 strategy=basic},canonicalize,func.func(cse,canonicalize)

An element is a name, then its options in braces or its children in parentheses, or neither.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardc.diagnostics.cli import BadPipeline

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_CLOSING = {"{": "}", "[": "]", "(": ")"}


@dataclass(frozen=True)
class Element:
    """A pass with the text in its braces, or an anchor op with the elements in its parentheses."""

    name: str
    options: str = ""
    children: tuple[Element, ...] = ()

    def __str__(self) -> str:
        if self.children:
            return f"{self.name}({','.join(map(str, self.children))})"
        return f"{self.name}{{{self.options}}}" if self.options else self.name


def parse_pipeline(text: str) -> tuple[Element, ...]:
    """Return the elements of ``text``, without an enclosing ``builtin.module(...)``. Raises BadPipeline."""
    reader = _Reader(text)
    elements = reader.elements() if text.strip() else ()
    reader.skip_space()
    if reader.at < len(text):
        raise reader.error(f"expected a comma or the end before {text[reader.at]!r}")
    return tuple(part for e in elements for part in (e.children if e.name == "builtin.module" else (e,)))


def parse_options(text: str) -> dict[str, str]:
    """Parse ``a=1 b='x y' c`` to ``{"a": "1", "b": "x y", "c": ""}``. Raises BadPipeline."""
    options: dict[str, str] = {}
    reader = _Reader(text)
    while True:
        reader.skip_space()
        if reader.at == len(text):
            return options
        name = reader.name()
        if name in options:
            raise reader.error(f"the option {name!r} is given twice")
        options[name] = reader.value() if reader.take("=") else ""


class _Reader:
    """A cursor over the text. ``at`` is the offset of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def error(self, problem: str) -> BadPipeline:
        return BadPipeline(problem=problem, snippet=f"\n    {self.text}\n    {' ' * self.at}^")

    def skip_space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, character: str) -> bool:
        if not self.text.startswith(character, self.at):
            return False
        self.at += 1
        return True

    def name(self) -> str:
        match = _NAME.match(self.text, self.at)
        if match is None:
            raise self.error("expected a name here")
        self.at = match.end()
        return match.group()

    def elements(self) -> tuple[Element, ...]:
        found = [self.element()]
        while self.take(","):
            found.append(self.element())
        return tuple(found)

    def element(self) -> Element:
        self.skip_space()
        element = Element(self.name())
        if self.text.startswith("{", self.at):
            element = Element(element.name, options=self.balanced()[1:-1].strip())
        elif self.take("("):
            element = Element(element.name, children=self.elements())
            if not self.take(")"):
                raise self.error("a closing parenthesis is missing")
        self.skip_space()
        return element

    def value(self) -> str:
        """Read an option's value up to a space outside brackets, without enclosing quotes or braces."""
        start, first = self.at, self.text[self.at : self.at + 1]
        if first in ("'", '"'):
            end = self.text.find(first, start + 1)
            if end < 0:
                raise self.error("a closing quote is missing")
            self.at = end + 1
            return self.text[start + 1 : end]
        if first == "{":
            return self.balanced()[1:-1]
        while self.at < len(self.text) and not self.text[self.at].isspace():
            if self.text[self.at] in _CLOSING:
                self.balanced()
            else:
                self.at += 1
        return self.text[start : self.at]

    def balanced(self) -> str:
        """Read the text from the bracket at the cursor to its closing bracket, both included."""
        start, open_brackets = self.at, []
        for offset in range(start, len(self.text)):
            character = self.text[offset]
            if character in _CLOSING:
                open_brackets.append(_CLOSING[character])
            elif open_brackets and character == open_brackets[-1]:
                open_brackets.pop()
                if not open_brackets:
                    self.at = offset + 1
                    return self.text[start : self.at]
        raise self.error(f"this {self.text[start]!r} is never closed")
