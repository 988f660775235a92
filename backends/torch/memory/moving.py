"""Tensors in flight in a program's text: results and operands of collectives that overlap with other ops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shardc.passes.partition.storage import VIEWS

_CALL = re.compile(r"\s*(\w+)[^=]*= (?:rank\.)?(\w+)\(\[?(\w*)")
_VIEWS = frozenset(view.removeprefix("aten.") for view in VIEWS) | {"slice_tensor"}


def moving_lines(program: Sequence[str]) -> frozenset[int]:
    """Return the lines, from 1 on, that make such tensors in forward or backward.

    Their bytes depend on how early collectives start, not on the depth of the model.
    """
    return frozenset(_lines(program))


def _lines(program: Sequence[str]) -> Iterator[int]:
    made: dict[str, tuple[int, str]] = {}
    is_update = False
    for number, text in enumerate(program, 1):
        if text.lstrip().startswith("# -- "):
            is_update = "optimizer" in text
        call = _CALL.match(text)
        if call is None:
            continue
        name, function, operand = call.groups()
        if "rank." in text and not text.rstrip().endswith(".wait()") and not is_update:
            yield number
            if (source := _owner(operand, made)) is not None:
                yield source
        made[name] = (number, operand if function in _VIEWS else "")


def _owner(name: str, made: dict[str, tuple[int, str]]) -> int | None:
    """Return the line that allocated a value's memory; None for an argument's."""
    while name in made:
        line, viewed = made[name]
        if not viewed:
            return line
        name = viewed
    return None
