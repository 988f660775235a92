"""Passes: frozen dataclasses whose fields are their options, each with a ``run`` that rewrites a module.

    @dataclass(frozen=True)
    class Propagate(Pass):
        \"\"\"Gives every value a sharding.\"\"\"

        name = "dist-propagate"
        max_iterations: int = 4

        def run(self, module: ir.Module) -> None: ...

The command line and pass pipelines spell the field ``max_iterations`` as ``max-iterations``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, get_type_hints

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.cli import BadPassOption, UnknownPassOption
from shardc.diagnostics.options import OldSpelling
from shardc.options.experts import CopiedExperts, read_pass_option
from shardc.options.given import OLD_NAMES

if TYPE_CHECKING:
    from torch_mlir import ir

Counts = tuple[tuple[str, int], ...]
Value = int | float | bool | str | tuple[str, ...] | tuple[float, ...] | Counts | CopiedExperts | Cluster


@dataclass(frozen=True)
class Pass:
    """Base of all passes. A subclass sets ``name``, has its options as fields with defaults, and ``run``."""

    name: ClassVar[str] = ""

    def run(self, module: ir.Module) -> None:
        """Rewrite ``module`` in place. Raises a ShardcError for problems that the user can fix."""
        raise NotImplementedError(f"{type(self).__name__} has no run method")

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the pass with options given as text, by their command-line names."""
        known = {option.name: option for option in cls.options()}
        for name in (name for name in options if name not in known):
            new = OLD_NAMES.get(name.replace("-", "_"), "").replace("_", "-")
            if new in known:
                raise OldSpelling(old=name, new=new, where=cls.name)
            raise UnknownPassOption(pass_name=cls.name, option=name, known=", ".join(known) or "none at all")
        return cls(**{known[name].field: known[name].parse(cls.name, text) for name, text in options.items()})

    @classmethod
    def options(cls) -> Iterator[Option]:
        """The options that the pass takes, in the order of its fields."""
        types = get_type_hints(cls)
        for field in dataclasses.fields(cls):
            yield Option(field.name.replace("_", "-"), field.name, types[field.name], field.default)


@dataclass(frozen=True)
class Option:
    """One option of a pass: its name on the command line, the field that it sets, its type and default."""

    name: str
    field: str
    type: type
    default: object

    def parse(self, pass_name: str, text: str) -> Value:
        """Return ``text`` as a value of the option's type. Raises BadPassOption."""
        expected, read = _KINDS.get(self.type, _UNREAD)
        try:
            return read(text)
        except (KeyError, ValueError):
            raise BadPassOption(pass_name=pass_name, option=self.name, text=text, expected=expected) from None

    def render(self) -> str:
        """Return text such as ``max-iterations=4 (int)``, for ``--list-passes``."""
        default = ",".join(map(str, self.default)) if isinstance(self.default, tuple) else self.default
        shown = str(default).lower() if isinstance(default, bool) else default
        return f"{self.name}={shown} ({_KINDS.get(self.type, _UNREAD)[0]})"


def _read_counts(text: str) -> Counts:
    parts = [part.rpartition("=") for part in filter(None, text.split(","))]
    return tuple((name, int(count)) for name, _, count in parts)


_BOOLS = {"": True, "true": True, "1": True, "false": False, "0": False}
_KINDS: dict[object, tuple[str, Callable[[str], Value]]] = {
    int: ("an integer", int),
    float: ("a number", float),
    bool: ("true or false", _BOOLS.__getitem__),
    str: ("text", str),
    tuple[str, ...]: ("a list such as a,b", lambda text: tuple(filter(None, text.split(",")))),
    tuple[float, ...]: ("numbers such as 3,1", lambda text: tuple(map(float, filter(None, text.split(","))))),
    Counts: ("counts such as layers=28", _read_counts),
    CopiedExperts: ("experts such as layers.0.*=3:17", read_pass_option),
    Cluster | None: ("a cluster's name or file", find_cluster),
}
"""Types of options -> the type's name in messages, and its parser."""
_UNREAD: tuple[str, Callable[[str], Value]] = ("what Python code gives it", {}.__getitem__)
"""Entry for all other types, which have no text form."""
