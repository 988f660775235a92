"""Parsers of ``--times``, ``--reads``, ``--option`` and ``--pin``."""

from collections.abc import Iterable
from math import isfinite

from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.passes.pipeline import BadOptionText, BadTimes
from shardc.diagnostics.tuner import BadPin


def parse_times(text: str) -> tuple[float, float, float, float]:
    """Parse ``1,1,0.5,0.1`` as seconds of F, I, W and of sending (default 0). Raises BadTimes."""
    try:
        seconds = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise BadTimes(text=text, problem=error, where="--times") from None
    if len(seconds) not in (3, 4):
        raise BadTimes(text=text, problem=f"there are {len(seconds)} of them", where="--times")
    if not all(isfinite(time) and time >= 0 for time in seconds) or not sum(seconds[:3]):
        raise BadTimes(text=text, problem="times are at least 0, and not all 0", where="--times")
    forward, input_gradient, weight_gradient, send = [*seconds, 0.0][:4]
    return forward, input_gradient, weight_gradient, send


def parse_reads(texts: Iterable[str], stages: int) -> tuple[tuple[int, ...], ...]:
    """Parse ``2=`` and ``4=1,3`` as what stages 2 and 4 read; others read the stage before them. Raises
    BadArgument.
    """
    reads = [(stage - 1,) if stage else () for stage in range(stages)]
    for text in texts:
        stage, _, others = text.replace(" ", "").partition("=")
        numbers = [stage, *(others.split(",") if others else ())]
        if "=" not in text or not all(n.isascii() and n.isdecimal() for n in numbers) or int(stage) >= stages:
            expected = f"a stage below {stages} and the stages that it reads"
            hint = "as in --reads 4=1,3, or --reads 2= for a stage that reads none"
            raise BadArgument(argument="--reads", given=repr(text), expected=expected, hint=hint)
        reads[int(stage)] = tuple(map(int, numbers[1:]))
    return tuple(reads)


def parse_options(texts: Iterable[str]) -> dict[str, int]:
    """Parse ``slices=2`` as ``{"slices": 2}``. Raises BadOptionText."""
    return _numbers(texts, 0, BadOptionText, "--option")


def parse_pins(texts: Iterable[str]) -> dict[str, int]:
    """Parse ``block_k=256`` as ``{"block_k": 256}``. Raises BadPin."""
    return _numbers(texts, 1, BadPin, "--pin")


def _numbers(texts: Iterable[str], least: int, error: type[ShardcError], where: str) -> dict[str, int]:
    """Parse ``NAME=NUMBER`` texts, with numbers of at least ``least``."""
    numbers = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        is_number = number.isascii() and number.isdecimal() and int(number) >= least
        if not (name.isidentifier() and is_number):
            raise error(text=text, where=where)
        numbers[name] = int(number)
    return numbers
