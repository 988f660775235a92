"""Builds the groups of options from what a user gave, by group and by field."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.options import OldSpelling, OptionElsewhere, UnknownOption
from shardc.diagnostics.text import did_you_mean
from shardc.options.field import FrontEnd, Group, Option, describe, options_of, where_given
from shardc.options.kernels import Kernels
from shardc.options.numerics import Numerics
from shardc.options.parallelism import Parallelism
from shardc.options.pipeline import Pipeline
from shardc.options.results import Results
from shardc.options.shapes import Shapes

_GROUPS = (Parallelism, Pipeline, Kernels, Numerics, Results, Shapes)
GROUPS: dict[str, type[Group]] = {g.__name__.lower(): g for g in _GROUPS}
"""Groups by name. A field name occurs in one group only."""

_OPTIONS = [option for group in GROUPS.values() for option in options_of(group).values()]
OLD_NAMES = {old: option.name for option in _OPTIONS for old in option.old_names}
"""Earlier names of options, with their present names."""

G = TypeVar("G", bound=Group)


class Given:
    """Options that a user gave: groups as dataclasses or mappings, and single fields, which override groups.

    None means not given. Raises BadArgument, UnknownOption, OldSpelling, OptionElsewhere.
    """

    def __init__(
        self, given: Mapping[str, object], front_end: FrontEnd, groups: Sequence[str] = tuple(GROUPS)
    ) -> None:
        self._front_end: FrontEnd = front_end
        self._made: dict[str, Group] = {}
        self._fields: dict[str, dict[str, object]] = {group: {} for group in groups}
        named: dict[str, object] = {}
        for name, value in given.items():
            if name in self._fields and isinstance(value, GROUPS[name]):
                self._made[name] = value
            elif name in self._fields and isinstance(value, Mapping):
                self._read(value, name)
            else:
                named[name] = value
        self._read(named)

    def has(self, group: str) -> bool:
        """Return whether any option of a group was given."""
        return group in self._made or bool(self._fields[group])

    def group(self, name: str, class_: type[G]) -> G:
        """Return the group ``name`` as an instance of ``class_``."""
        options, values = options_of(class_), self._fields[name]
        for field_, option in options.items():
            if field_ in values:
                values[field_] = option.check(values[field_], self._front_end)
            elif option.is_required and name not in self._made:
                option.check(None, self._front_end)
        made = self._made.get(name)
        return replace(made, **values) if isinstance(made, class_) else class_(**values)

    def _read(self, values: Mapping[str, object], within: str | None = None) -> None:
        for name, value in values.items():
            if value is None:
                continue
            group, option = self._find(name, value, within)
            owner = option.about.only
            if owner and not self._has(owner):
                where = where_given(name, self._front_end)
                raise OptionElsewhere(name=name, owner=owner, front_end=self._front_end, where=where)
            self._fields[group][name] = value

    def _has(self, owner: FrontEnd) -> bool:
        return (owner == "torch.compile") == (self._front_end == "torch.compile")

    def _find(self, name: str, value: object, within: str | None) -> tuple[str, Option]:
        """Return the group and the option called ``name``; ``within`` restricts the search to one group."""
        groups = [within] if within else list(self._fields)
        found = {n: (group, o) for group in groups for n, o in options_of(GROUPS[group]).items()}
        if name in found:
            return found[name]
        where, new = where_given(name, self._front_end), OLD_NAMES.get(name)
        if new in found:
            raise OldSpelling(old=name, new=new, where=where)
        if name in groups:
            class_ = GROUPS[name].__name__
            expected = f"a {class_} or a mapping of its fields"
            hint = f"as in {name}={class_}(...); its fields may be given by name, too"
            raise BadArgument(argument=name, given=describe(value), expected=expected, hint=hint, where=where)
        known = [n for n, (_, o) in found.items() if not o.about.only or self._has(o.about.only)]
        front_end, nearest = self._front_end + (f"'s {within}" if within else ""), did_you_mean(name, known)
        raise UnknownOption(
            front_end=front_end, name=name, nearest=nearest, known=", ".join(known), where=where
        )
