"""Checks of the arguments of a running step's methods."""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor

from .errors import WrongArgument

YEAR_S = 366 * 86400


def path_given(value: object, name: str) -> Path:
    """Return a path given as text or as a path. Raises WrongArgument."""
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise WrongArgument(f"{name} is {in_words(value)}, not a path", name)
    try:
        Path(value).exists()
    except OSError as error:
        raise WrongArgument(f"{name} is not a path: {os.strerror(error.errno or 0)}", name) from None
    return Path(value)


def whole_number(value: object, name: str, at_least: int = 1) -> int:
    """Return a whole number of at least ``at_least``. Raises WrongArgument for anything else."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise WrongArgument(f"{name} is {in_words(value)}, not a whole number from {at_least}", name)
    return value


def mapping_given(value: object, name: str, of: str) -> Mapping[str, object]:
    """Return a mapping with text as keys. Raises WrongArgument for anything else."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise WrongArgument(f"{name} is {in_words(value)}, not a mapping from names to {of}", name)
    return value


def number_given(value: object, name: str) -> float:
    """Return a number that is given as such, or as a tensor of one element. Raises WrongArgument."""
    is_one = isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta
    if isinstance(value, bool) or not (is_one or isinstance(value, int | float)):
        raise WrongArgument(f"{name} is {in_words(value)}, not a number", name)
    try:
        return float(value)  # pyright: ignore[reportArgumentType]: a number or a tensor of one
    except OverflowError:
        raise WrongArgument(f"{name} is too large a number", name) from None


def device_given(value: object) -> torch.device:
    """Return a device. Raises WrongArgument for anything else."""
    try:
        return torch.device(value)  # type: ignore[arg-type]
    except (RuntimeError, TypeError, ValueError):
        raise WrongArgument(f"device is {in_words(value)}, not a device such as 'cpu'", "device") from None


def seconds_given(value: object, name: str) -> timedelta:
    """Return a time above 0 and below a year. Raises WrongArgument."""
    seconds = number_given(value, name)
    if not 0 < seconds < YEAR_S:
        raise WrongArgument(f"{name} is {seconds:g}, not a number of seconds from above 0 to a year", name)
    return timedelta(seconds=seconds)


def in_words(value: object) -> str:
    """Format a value for a message: short values by themselves, others by their type."""
    is_short = value is None or isinstance(value, bool | int | float | str | bytes)
    return f"{value!r:.40}" if is_short else f"a {type(value).__name__}"
