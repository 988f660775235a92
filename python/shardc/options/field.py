"""Options as fields of frozen dataclasses, each with its help, check and spellings.

    @dataclass(frozen=True)
    class Numerics(Group):
        clip_grad_norm: float | None = option(None, "Clip the gradients to this norm.", above=0)

Such a field defines the keyword of ``compile_step``, the flag ``--clip-grad-norm``, an entry of
``torch.compile``'s options, the check of values, the help of the command line and the reference in
``docs/reference``.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, isinf
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.options import OldSpelling
from shardc.diagnostics.text import did_you_mean

T = TypeVar("T")
FrontEnd = Literal["compile_step", "torch.compile", "the command line"]
"""Interface through which an option is given; the command line takes the options of ``compile_step``."""
_UNITS = {"": 1, "k": 1_000, "M": 1_000**2, "G": 1_000**3, "T": 1_000**4}
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_SIZE = re.compile(r"(?P<number>\d[\d_]*(\.\d+)?)\s*(?P<unit>[kMGT]i?|Ki|)B?")


@dataclass(frozen=True)
class Hint:
    """Texts for messages: what is ``expected``, an ``example``, and the flag's ``metavar``."""

    expected: str = ""
    example: str = ""
    metavar: str | None = None


@dataclass(frozen=True)
class About:
    """Properties of an option besides its type and default.

    Numbers are at least ``at_least``, at most ``at_most`` and greater than ``above``. ``convert`` maps a
    given value to the stored one; ``parse`` does so for a flag's text. ``was``: earlier names.
    ``was_values``: earlier values with their replacements. ``only``: the only front end with this option.
    ``has_flag``: whether the command line has it.
    """

    help: str
    hint: Hint = Hint()
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    short: str = ""
    parse: Callable[[str], object] | None = None
    convert: Callable[[object], object] | None = None
    was: str | tuple[str, ...] = ()
    was_values: Mapping[str, str] = dataclasses.field(default_factory=dict)
    only: FrontEnd | None = None
    has_flag: bool = True


def option(default: T, help: str, hint: Hint = Hint(), **more: Any) -> T:
    """Define a field of a group; ``more`` are further fields of :class:`About`."""
    return dataclasses.field(default=default, metadata={"about": About(help, hint, **more)})


def required(help: str, hint: Hint = Hint(), **more: Any) -> Any:
    """Define a field without a default."""
    return dataclasses.field(metadata={"about": About(help, hint, **more)})


@dataclass(frozen=True)
class Group:
    """Base of groups of options. A subclass declares options as fields, which are checked on construction.

    Raises BadArgument, OldSpelling.
    """

    def __post_init__(self) -> None:
        for name, option in options_of(type(self)).items():
            object.__setattr__(self, name, option.check(getattr(self, name), "compile_step"))


@dataclass(frozen=True)
class Option:
    """One option: the field ``name`` of a group, with its type, default and description."""

    name: str
    type: object
    default: object
    about: About

    @property
    def is_required(self) -> bool:
        return self.default is dataclasses.MISSING

    @property
    def old_names(self) -> tuple[str, ...]:
        return (self.about.was,) if isinstance(self.about.was, str) else self.about.was

    @property
    def is_list(self) -> bool:
        """Return whether its flag is repeated, once for each item."""
        return get_origin(self.type) is tuple

    @property
    def expected(self) -> str:
        return self.about.hint.expected or _expected(self.type, self.about)

    def read(self, text: object) -> object:
        """Convert the command line's value for its flag: text, or already a number or list."""
        return self.about.parse(text) if self.about.parse and isinstance(text, str) else text

    def check(self, value: object, front_end: FrontEnd) -> object:
        """Check ``value`` and return what the group stores. Raises BadArgument, OldSpelling."""
        where = where_given(self.name, front_end)
        kept = self.about.convert(value) if self.about.convert and value is not None else value
        kept = tuple(kept) if isinstance(kept, list) else kept
        if isinstance(kept, str) and kept in self.about.was_values:
            new = f"{self.name}={self.about.was_values[kept]!r}"
            raise OldSpelling(old=f"{self.name}={kept!r}", new=new, where=where)
        if not _matches(kept, self.type) or not self._is_within(kept):
            expected = self.expected + did_you_mean(kept, choices(self.type))
            given, hint = describe(value), self.about.hint.example or self.about.help
            raise BadArgument(argument=self.name, given=given, expected=expected, hint=hint, where=where)
        return kept

    def _is_within(self, value: object) -> bool:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return True
        above, at_least, at_most = self.about.above, self.about.at_least, self.about.at_most
        return (
            (above is None or value > above)
            and (at_least is None or value >= at_least)
            and (at_most is None or value <= at_most)
        )


@cache
def options_of(group: type[Group]) -> dict[str, Option]:
    """Return the options of a group by name, in the order of its fields."""
    types, fields = get_type_hints(group), dataclasses.fields(group)
    return {f.name: Option(f.name, types[f.name], f.default, f.metadata["about"]) for f in fields}


def flag(name: str) -> str:
    """Return an option's spelling on the command line."""
    return f"--{name.replace('_', '-')}"


def where_given(name: str, front_end: FrontEnd) -> str:
    """Return an option's spelling in a front end, for messages."""
    if front_end == "the command line":
        return flag(name)
    return f"{name}=" if front_end == "compile_step" else f'options={{"{name}": ...}}'


def describe(value: object) -> str:
    """Describe a value in a message: numbers and text literally, anything else by its type."""
    if value is None or isinstance(value, bool | int | float | str) or type(value).__name__ == "dtype":
        return repr(value)
    if isinstance(value, Mapping):
        keys = ", ".join(repr(key) for key in list(value)[:3])
        return f"a {type(value).__name__} with the keys {keys or 'none'}"
    if isinstance(value, list | tuple):
        items = ", ".join(map(describe, value[:3]))
        return f"a {type(value).__name__} of {items or 'nothing'}"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def choices(kind: object) -> tuple[str, ...]:
    """Return the names that a type allows."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(dict.fromkeys(name for part in get_args(kind) for name in choices(part)))


def _matches(value: object, kind: object) -> bool:
    """Return whether ``value`` has the annotated type ``kind``."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_matches(value, part) for part in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is tuple:
        return isinstance(value, tuple) and all(_matches(item, inner[0]) for item in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_matches(key, inner[0]) for key in value)
    if kind in (int, float):
        return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    wanted = origin or kind
    return isinstance(wanted, type) and isinstance(value, wanted)


_WORDS: dict[object, str] = {bool: "True or False", str: "a name", Path: "a path", NoneType: "None"}


def _expected(kind: object, about: About) -> str:
    """Describe the values that a type allows."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(_expected(part, about) for part in inner)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple:
        return f"a list of {_expected(inner[0], about)}"
    if kind in (int, float):
        number = "a whole number" if kind is int else "a number"
        least = "" if about.at_least is None else f" from {about.at_least:g}"
        most = "" if about.at_most is None else f" to {about.at_most}"
        return number + (least if about.above is None else f" above {about.above:g}") + most
    return _WORDS.get(kind, str(kind))


def size_of(value: object) -> object:
    """Convert ``"40GB"``, ``"1.5 GiB"`` or ``40e9`` to bytes; return any other value unchanged."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    unit = {**_UNITS, **_BINARY}.get(found["unit"])
    size = inf if unit is None else float(found["number"]) * unit
    return value if isinf(size) else int(size)
