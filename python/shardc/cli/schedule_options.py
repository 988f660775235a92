"""Reads the text of ``--times`` and ``--option``."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from shardc.diagnostics.pipeline import BadOptionText, BadTimes


def parse_times(text: str) -> tuple[float, float, float, float]:
    """``1,1,0.5,0.1`` as seconds of F, I, W and of sending, 0 if not given. Raises BadTimes."""
    try:
        seconds = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise BadTimes(text=text, problem=error, where="--times") from None
    if len(seconds) not in (3, 4):
        raise BadTimes(text=text, problem=f"there are {len(seconds)} of them", where="--times")
    if not all(isfinite(time) and time >= 0 for time in seconds) or not sum(seconds[:3]):
        raise BadTimes(text=text, problem="times are at least 0, and not all 0", where="--times")
    forward, input_gradient, weight_gradient, *send = seconds
    return forward, input_gradient, weight_gradient, *(send or [0.0])  # type: ignore[return-value]


def parse_options(texts: Iterable[str]) -> dict[str, int]:
    """``slices=2`` as ``{"slices": 2}``. Raises BadOptionText."""
    options = {}
    for text in texts:
        name, equals, number = (part.strip() for part in text.partition("="))
        if not (equals and name.isidentifier() and number.isascii() and number.isdecimal()):
            raise BadOptionText(text=text, where="--option")
        options[name] = int(number)
    return options
