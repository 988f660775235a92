"""What a pass is: a frozen dataclass whose fields are its options, and a ``run`` that rewrites a module.

    @dataclass(frozen=True)
    class Propagate(Pass):
        \"\"\"Gives every value a sharding.\"\"\"

        name = "dist-propagate"
        max_iterations: int = 4

        def run(self, module: ir.Module) -> None: ...

The command line and pipelines spell the field ``max_iterations`` as ``max-iterations``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, get_type_hints

from shardc.diagnostics.cli import BadPassOption, UnknownPassOption
from shardc.diagnostics.options import OldSpelling
from shardc.options.given import OLD_NAMES

if TYPE_CHECKING:
    from torch_mlir import ir

Value = int | float | bool | str | tuple[str, ...]


@dataclass(frozen=True)
class Pass:
    """Base of all passes. A subclass sets ``name``, has its options as fields with defaults, and ``run``."""

    name: ClassVar[str] = ""

    def run(self, module: ir.Module) -> None:
        """Rewrites ``module`` in place. Raises a ShardcError for what the user can mend."""
        raise NotImplementedError(f"{type(self).__name__} has no run method")

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """The pass with options given as text, by their command-line names."""
        known = {option.name: option for option in cls.options()}
        for name in options:
            new = OLD_NAMES.get(name.replace("-", "_"), "").replace("_", "-")
            if name not in known and new in known:
                raise OldSpelling(old=name, new=new, where=cls.name)
            if name not in known:
                raise UnknownPassOption(
                    pass_name=cls.name, option=name, known=", ".join(known) or "none at all"
                )
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
        """``text`` as a value of the option's type. Raises BadPassOption."""
        try:
            return _parse(self.type, text)
        except ValueError:
            expected = _TYPE_NAMES.get(self.type, str(self.type))
            raise BadPassOption(pass_name=pass_name, option=self.name, text=text, expected=expected) from None

    def render(self) -> str:
        """``max-iterations=4 (int)``, for ``--list-passes``."""
        default = ",".join(self.default) if isinstance(self.default, tuple) else self.default
        shown = str(default).lower() if isinstance(default, bool) else default
        return f"{self.name}={shown} ({_TYPE_NAMES.get(self.type, str(self.type))})"


_TYPE_NAMES: dict[object, str] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
    tuple[str, ...]: "a list such as a,b",
}
_BOOLS = {"": True, "true": True, "1": True, "false": False, "0": False}


def _parse(kind: object, text: str) -> Value:
    if kind is bool:
        if text not in _BOOLS:
            raise ValueError(text)
        return _BOOLS[text]
    if kind is int:
        return int(text)
    if kind is float:
        return float(text)
    if kind is str:
        return text
    if kind == tuple[str, ...]:
        return tuple(item for item in text.split(",") if item)
    raise TypeError(f"a pass option can't be of type {kind}: use int, float, bool, str or tuple[str, ...]")
