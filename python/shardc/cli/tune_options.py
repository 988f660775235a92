"""Reads the text of ``--pin``, and the file of ``--points``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from shardc.diagnostics.cli import UnreadableInput
from shardc.diagnostics.tuner import BadPin
from shardc.tuner.space.wishes import Wishes, read_wishes


def read_options(pins: Iterable[str], points: Path | None = None) -> Wishes:
    """What both say; pins of the command line come last. Raises BadPin, UnreadableInput, MalformedWishes, UnknownWish."""
    wishes = Wishes(where="--pin")
    if points is not None:
        try:
            wishes = read_wishes(points.read_text(encoding="utf-8"), str(points))
        except (OSError, UnicodeDecodeError) as error:
            raise UnreadableInput(file=points, problem=error) from None
    return replace(wishes, pin={**wishes.pin, **parse_pins(pins)})


def parse_pins(texts: Iterable[str]) -> dict[str, int]:
    """``block_k=256`` as ``{"block_k": 256}``. Raises BadPin."""
    pins = {}
    for text in texts:
        name, equals, number = (part.strip() for part in text.partition("="))
        if not (equals and name.isidentifier() and number.isascii() and number.isdecimal() and int(number) >= 1):
            raise BadPin(text=text, where="--pin")
        pins[name] = int(number)
    return pins
