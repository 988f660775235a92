"""Takes from a failing program what does not matter."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from dataclasses import replace

from .program import Program


def reduced(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A program that fails as well and from which nothing more can be taken: no line, result, gradient or
    layout.
    """
    while smaller := next((p for p in _smaller(program) if fails(p)), None):
        program = smaller
    return program


def _smaller(program: Program) -> Iterator[Program]:
    for n in range(len(program.results)):
        if len(program.results) > 1:
            yield replace(program, results=(*program.results[:n], *program.results[n + 1 :]))
    for n in reversed(range(len(program.lines))):
        lines = (*program.lines[:n], *program.lines[n + 1 :])
        yield replace(program, lines=lines)
        name, text = _assigned(program.lines[n])
        for other in _read(text):
            if name and other != name:
                swapped = tuple(renamed(line, name, other) for line in program.lines[n + 1 :])
                results = tuple(dict.fromkeys(other if r == name else r for r in program.results))
                yield replace(program, lines=program.lines[:n] + swapped, results=results)
    for n, given in enumerate(program.given):
        for plainer in (
            {"differentiated": False},
            {"layout": "contiguous"},
            {"special": False},
            {"dtype": "f32"},
        ):
            if replace(given, **plainer) != given:
                yield replace(
                    program, given=(*program.given[:n], replace(given, **plainer), *program.given[n + 1 :])
                )


def _assigned(line: str) -> tuple[str, str]:
    """The value that a line makes, or nothing, and from what."""
    name, _, text = (
        line.rpartition(": ")[2].partition(" = ") if line.startswith("with ") else line.partition(" = ")
    )
    return (name, text) if name[1:].isdigit() else ("", line)


def _read(text: str) -> list[str]:
    words = "".join(c if c in string.ascii_letters + string.digits + "_" else " " for c in text).split()
    return list(dict.fromkeys(w for w in words if w[0] == "v" and w[1:].isdigit()))


def renamed(line: str, name: str, other: str) -> str:
    """With ``other`` wherever the line says ``name``."""
    found, word = [], ""
    for c in line + "\0":
        if c.isalnum() or c == "_":
            word += c
            continue
        found += [other if word == name else word, c]
        word = ""
    return "".join(found)[:-1]
