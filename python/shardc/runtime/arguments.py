"""What the arguments of a running step's methods must be."""

import os
from collections.abc import Mapping
from pathlib import Path

from .errors import WrongArgument


def path_given(value: object, name: str) -> Path:
    """A path that was given as text or as a path. Raises WrongArgument."""
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise WrongArgument(f"{name} is {_shown(value)}, not a path", name)
    try:
        Path(value).exists()
    except OSError as error:
        raise WrongArgument(f"{name} is no path: {os.strerror(error.errno or 0)}", name) from None
    return Path(value)


def whole_number(value: object, name: str, at_least: int = 1) -> int:
    """Raises WrongArgument for anything but a whole number from ``at_least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise WrongArgument(f"{name} is {_shown(value)}, not a whole number from {at_least}", name)
    return value


def mapping_given(value: object, name: str, of: str) -> Mapping[str, object]:
    """Raises WrongArgument for anything but a mapping with text as keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise WrongArgument(f"{name} is {_shown(value)}, not a mapping from names to {of}", name)
    return value


def _shown(value: object) -> str:
    is_short = value is None or isinstance(value, bool | int | float | str | bytes)
    return f"{value!r:.40}" if is_short else f"a {type(value).__name__}"
