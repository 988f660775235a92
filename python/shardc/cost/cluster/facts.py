"""Types and ranges of the fields of a cluster's description, given once in their annotations.

    bandwidth_bytes_s: Annotated[float, Bound(above=0)]

Checks of Python values, the YAML reader and the JSON schema all use them.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from dataclasses import dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from shardc.diagnostics.cluster import BadClusterValue
from shardc.diagnostics.text import did_you_mean


@dataclass(frozen=True)
class Bound:
    """The range of a number: greater than ``above``, or at least ``at_least``, at most ``at_most``."""

    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool:
        return (
            (self.above is None or value > self.above)
            and (self.at_least is None or value >= self.at_least)
            and value <= (float("inf") if self.at_most is None else self.at_most)
            and value < float("inf")
        )

    def __str__(self) -> str:
        least = "" if self.at_least is None else f" from {self.at_least:g}"
        most = "" if self.at_most is None else f" to {self.at_most:g}"
        return (least if self.above is None else f" above {self.above:g}") + most


Positive = Annotated[float, Bound(above=0)]
"""Type of rates and amounts."""
NotNegative = Annotated[float, Bound(at_least=0)]
"""Type of times."""
Count = Annotated[int, Bound(at_least=1)]
CountOrNone = Annotated[int, Bound(at_least=0)]
Part = Annotated[float, Bound(above=0, at_most=1)]
"""Share of a rate that is reached."""


@dataclass(frozen=True)
class Kind:
    """Type and range of a field.

    ``type``: int, float, str, bool or a dataclass of facts. ``choices``: allowed texts. ``is_list``: a tuple
    of such values. ``is_table``: a tuple of tuples.
    """

    type: type
    bound: Bound | None = None
    choices: tuple[str, ...] = ()
    is_list: bool = False
    is_table: bool = False
    is_optional: bool = False
    is_required: bool = True
    default: object = None

    @property
    def expected(self) -> str:
        """Describe the allowed values."""
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        one = " or ".join(self.choices) or names.get(self.type, "keys with values") + str(self.bound or "")
        return f"a list, each {one}" if self.is_list or self.is_table else one

    def fits(self, value: object) -> bool:
        """Return whether a value, or each item of a list, has the type and range."""
        if self.type in (int, float):
            is_number = isinstance(value, int if self.type is int else int | float)
            return is_number and not isinstance(value, bool) and (self.bound or Bound()).holds(value)  # pyright: ignore[reportArgumentType]
        return isinstance(value, self.type) and (not self.choices or value in self.choices)


@dataclass(frozen=True)
class Facts:
    """Base of the parts of a cluster. Raises BadClusterValue."""

    def __post_init__(self) -> None:
        for name, kind in kinds(type(self)).items():
            value = getattr(self, name)
            if kind.is_required or value != kind.default:
                check(name, value, kind, self)


@cache
def kinds(of: type[Facts]) -> dict[str, Kind]:
    """Return the fields of a part by name, in their order."""
    hints = get_type_hints(of, include_extras=True)
    return {f.name: _with_default(_kind(hints[f.name]), f) for f in dataclasses.fields(of)}


def title(part: Facts) -> str:
    """Describe a part in a message: ``level 'nvlink'``."""
    name = getattr(part, "name", "")
    return f"{type(part).__name__.lower()} {name!r}" if name else type(part).__name__.lower()


def check(name: str, value: object, kind: Kind, part: Facts) -> None:
    """Raise BadClusterValue for a value of the wrong type or range."""
    values = [value]
    if kind.is_list or kind.is_table:
        values = list(value) if isinstance(value, tuple) else [None]
    if kind.is_table:
        values = [one for row in values for one in (row if isinstance(row, tuple) else (None,))]
    wrong = [one for one in values if not kind.fits(one)]
    if wrong:
        near = did_you_mean(wrong[0], kind.choices)
        given = repr(wrong[0]) if isinstance(wrong[0], str | int | float) else f"a {type(wrong[0]).__name__}"
        says = texts(type(part)).get(name, f"give {kind.expected}")
        raise BadClusterValue(key=name, of=title(part), given=given, expected=kind.expected + near, says=says)


def _with_default(kind: Kind, field: dataclasses.Field[Any]) -> Kind:
    made, missing = field.default_factory, dataclasses.MISSING
    default = field.default if made is missing else made()
    return kind if default is missing else replace(kind, is_required=False, default=default)


def _kind(hint: Any) -> Kind:
    """Return the type and range that an annotation gives."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bound = next((said for said in inner[1:] if isinstance(said, Bound)), None)
        return replace(_kind(inner[0]), bound=bound) if bound else _kind(inner[0])
    if origin in (Union, UnionType):
        (some,) = (part for part in inner if part is not NoneType)
        return replace(_kind(some), is_optional=True)
    if origin is Literal:
        return Kind(str, choices=inner)
    if origin is tuple:
        one = _kind(inner[0])
        return replace(one, is_list=not one.is_list, is_table=one.is_list)
    return Kind(hint)


@cache
def texts(of: type[Facts]) -> dict[str, str]:
    """Return the docstring below each field in the source, on one line."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    assert isinstance(node, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match text:
                case ast.Expr(value=ast.Constant(value=str() as said)):
                    found[field.target.id] = " ".join(said.split())
    return found
