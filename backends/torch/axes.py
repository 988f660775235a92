"""Mesh axes in an emitted program: constants at its head, and indices of ranks and iterations over them."""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import prod

from shardc.backends.torch.names import Names, identifier, tuple_text
from shardc.dialects.dist.axis import Axis, merge
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes


class AxesTable:
    """Lists of axes that a program names. ``grouped``: those that its collectives span."""

    def __init__(self, mesh: Mesh, names: Names) -> None:
        self.mesh = mesh
        self._names = names
        self._named: dict[Axes, str] = {}
        self._indices: dict[Axes, str] = {}
        self._variables: dict[str, str] = {}
        self._shares: dict[Axis, str] = {}
        self.grouped: dict[Axes, None] = {}

    def name(self, axes: Axes) -> str:
        """Return the name of the constant for ``axes``."""
        if not axes:
            return "()"
        if axes not in self._named:
            self._named[axes] = self._names.exact("_".join(self._word(a) for a in axes).upper())
        return self._named[axes]

    def group(self, axes: Axes) -> str:
        """Return the name of the constant for the ``axes`` of a collective."""
        self.grouped[axes] = None
        return self.name(axes)

    def enter_loop(self, axis: Axis) -> str:
        """Return the variable of a loop over a time axis."""
        variable = self._variables[axis.name] = self._names.exact(axis.name)
        return variable

    def share(self, axis: Axis) -> str:
        """Return the variable with this rank's iterations of a time axis; empty if it runs all."""
        if axis.name not in self.mesh.shares:
            return ""
        if axis not in self._shares:
            self._shares[axis] = self._names.exact(f"{axis.name}s")
        return self._shares[axis]

    def index(self, axes: Axes) -> str:
        """Return Python for this rank's and iteration's index over ``axes``, the first being most major."""
        terms: list[tuple[str, int]] = []
        for run in _runs(axes, self.mesh):
            size = prod(axis.size for axis in run)
            text = self._iteration(run[0]) if self.mesh.is_time(run[0]) else self._place(run)
            terms = [(t, s * size) for t, s in terms] + [(text, 1)]
        return " + ".join(t if s == 1 else f"{t} * {s}" for t, s in terms) or "0"

    def head(self) -> list[str]:
        """Return the lines of the constants, and of the list of groups."""
        named = self._named.items()
        triples = {name: [f'("{a.name}", {a.pre}, {a.size})' for a in axes] for axes, name in named}
        lines = [f"{name} = {tuple_text(texts)}" for name, texts in triples.items()]
        return [*lines, f"GROUPS = [{', '.join(self.name(a) for a in self.grouped)}]"]

    def indices(self) -> list[str]:
        """Return the lines that compute this rank's indices, once for the whole step."""
        places = [f"{name} = rank.index({self.name(axes)})" for axes, name in self._indices.items()]
        return [*places, *(f"{name} = {self._trips(axis)}" for axis, name in self._shares.items())]

    def _trips(self, axis: Axis) -> str:
        sharers, trips = self.mesh.sharers(axis), self.mesh.shares[axis.name].trips
        assert sharers is not None
        ranges = [f"range({end - n}, {end})" for n, end in zip(trips, accumulate(trips), strict=True)]
        return f"({', '.join(ranges)})[rank.index({self.name((sharers,))})]"

    def _place(self, axes: Axes) -> str:
        if axes not in self._indices:
            word = "_".join(self._word(a) for a in axes)
            self._indices[axes] = self._names.exact(f"{word}_index")
            self.name(axes)
        return self._indices[axes]

    def _iteration(self, axis: Axis) -> str:
        variable, total = self._variables[axis.name], self.mesh.size(axis.name)
        if axis.size == total:
            return variable
        after = total // (axis.pre * axis.size)
        text = variable if after == 1 else f"{variable} // {after}"
        return f"({text})" if axis.pre == 1 else f"({text} % {axis.size})"

    def _word(self, axis: Axis) -> str:
        whole = axis.pre == 1 and axis.size == self.mesh.size(axis.name)
        return identifier(axis.name if whole else f"{axis.name}_{axis.pre}_{axis.size}")


def union(axes: Axes) -> Axes:
    """Return the axes that several lists span together, each way once, in order of name and position."""
    cuts: dict[str, set[int]] = {}
    for a in axes:
        cuts.setdefault(a.name, set()).update((a.pre, a.pre * a.size))
    parts = []
    for name in dict.fromkeys(a.name for a in axes):
        bounds = sorted(cuts[name])
        pieces = [Axis(name, low, high // low) for low, high in pairwise(bounds)]
        parts.extend(p for p in pieces if any(p.overlaps(a) for a in axes))
    return merge(tuple(parts))


def _runs(axes: Axes, mesh: Mesh) -> list[Axes]:
    """Group adjacent space axes; each time axis is alone."""
    runs: list[Axes] = []
    for axis in axes:
        if runs and not mesh.is_time(axis) and not mesh.is_time(runs[-1][-1]):
            runs[-1] = (*runs[-1], axis)
        else:
            runs.append((axis,))
    return runs
