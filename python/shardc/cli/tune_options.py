"""Reads the text of ``--pin``."""

from __future__ import annotations

from collections.abc import Iterable

from shardc.diagnostics.tuner import BadPin


def parse_pins(texts: Iterable[str]) -> dict[str, int]:
    """``block_k=256`` as ``{"block_k": 256}``. Raises BadPin."""
    pins = {}
    for text in texts:
        name, equals, number = (part.strip() for part in text.partition("="))
        if not (
            equals and name.isidentifier() and number.isascii() and number.isdecimal() and int(number) >= 1
        ):
            raise BadPin(text=text, where="--pin")
        pins[name] = int(number)
    return pins
