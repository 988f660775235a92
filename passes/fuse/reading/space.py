"""Iteration space of a group: factors of dims ("atoms"), unified where an op reads another op's result.

A dim of a value is a list of atoms, most major first; a dim of size 1 is an empty list. If two equal dims
have different factors because of a reshape between the ops, atoms are split until they agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shardc.dialects.kern.size import AnySize, quotient

Atoms = tuple[int, ...]

_numbers = itertools.count()


class Mismatch(Exception):
    """Two dims cannot be unified: they lack common factors, or an atom would occur twice in a value."""


@dataclass(frozen=True)
class Dim:
    """Access to a dim of a tensor: element ``offset + step * (the atoms' index)`` of ``size``.

    ``sliced``: True if some elements are not read. ``parts``: row-major factors of the dim, each with its own
    access. ``gathered``: True if one element is read, at the computed index ``number`` of the access.
    """

    atoms: Atoms
    size: AnySize
    offset: int = 0
    step: int = 1
    sliced: bool = False
    parts: tuple[Dim, ...] = ()
    gathered: bool = False
    number: int = 0

    @property
    def plain(self) -> bool:
        """Return whether all elements are read in order."""
        return not self.sliced and not self.parts and not self.gathered

    @staticmethod
    def of_parts(dims: Sequence[Dim], size: AnySize) -> Dim:
        """Return the dim of ``size`` elements whose factors are ``dims``."""
        if len(dims) == 1:
            return dims[0]
        if all(dim.plain for dim in dims):
            return Dim(tuple(a for dim in dims for a in dim.atoms), size)
        return Dim((), size, parts=tuple(part for dim in dims for part in (dim.parts or (dim,))))


@dataclass
class Space:
    """Sizes of atoms, and the replacements of atoms that were split or unified."""

    sizes: dict[int, AnySize] = field(default_factory=dict)
    _became: dict[int, Atoms] = field(default_factory=dict)

    def new(self, size: AnySize) -> Atoms:
        """Return a new dim of ``size``."""
        if size == 1:
            return ()
        atom = next(_numbers)
        self.sizes[atom] = size
        return (atom,)

    def joined(self, other: Space) -> Space:
        """Return a copy with the atoms of both."""
        return Space({**self.sizes, **other.sizes}, {**self._became, **other._became})

    def resolve(self, atoms: Iterable[int]) -> Atoms:
        """Return the current atoms for ``atoms``."""
        atoms, gone = tuple(atoms), self._became.keys()
        if gone.isdisjoint(atoms):
            return atoms
        found: list[int] = []
        for atom in atoms:
            became = self._became.get(atom, (atom,))
            if atom in gone and not gone.isdisjoint(became):
                self._became[atom] = became = self.resolve(became)
            found += became
        return tuple(found)

    def unify(self, a: Atoms, b: Atoms) -> None:
        """Unify two dims of the same size. After a Mismatch the space must not be used."""
        while True:
            a, b = self.resolve(a), self.resolve(b)
            if a == b:
                return
            differ = (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
            common = next(differ, min(len(a), len(b)))
            a, b = a[common:], b[common:]
            if not a or not b:
                if a or b:
                    raise Mismatch
                return
            self._match(a[0], b[0])

    def _match(self, x: int, y: int) -> None:
        minor = quotient(self.sizes[x], self.sizes[y])
        if minor is None:
            x, y = y, x
            minor = quotient(self.sizes[x], self.sizes[y])
        if minor is None:
            raise Mismatch
        self._became[x] = (y, *self.new(minor))
