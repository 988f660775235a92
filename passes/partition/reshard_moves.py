"""States and moves of the search for the cheapest chain of reshard steps.

Axes of both layouts are split to a common refinement and numbered. A state has the axes on each dim, in
order, and the axes with partial terms. Moves lead towards the target: axes are added only to dims where the
target has them. A collective over several adjacent axes is one move.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice, permutations
from math import prod
from typing import NamedTuple

from shardc.dialects.dist import reshard_steps as steps
from shardc.dialects.dist.axis import Axis, merge, refine
from shardc.dialects.dist.sharding import Axes, Sharding, normal_partial

MAX_REARRANGED = 4
"""With more axes than this, permutes are tried only to a few arrangements."""

Numbers = tuple[int, ...]
Dims = tuple[Numbers, ...]


class State(NamedTuple):
    """Numbers of the axes on each dim, and of the axes with terms of ``reduction``, sorted."""

    dims: Dims
    partial: Numbers
    reduction: str


class Move(NamedTuple):
    """A step: its kind, its dims, the numbers of its axes, and the resulting state."""

    kind: type
    dims: tuple[int, ...]
    axes: Numbers
    to: State


class Moves:
    """The moves between ``source`` and ``target``, both normal, which divide the tensor's global ``shape``.

    With ``scatter_anywhere``, reduce-scatters may add axes that the target lacks: if links differ, it can pay
    to divide a reduction among the devices of a fast axis and to gather the result.
    """

    def __init__(
        self, source: Sharding, target: Sharding, shape: tuple[int, ...], scatter_anywhere: bool = False
    ) -> None:
        everything = frozenset(source.used) | frozenset(target.used)
        self.axes: Axes = tuple(sorted({a for axis in everything for a in refine((axis,), everything)}))
        self.shape = shape
        self._scatter_anywhere = scatter_anywhere
        self.clash = [
            frozenset(j for j, other in enumerate(self.axes) if i == j or axis.overlaps(other))
            for i, axis in enumerate(self.axes)
        ]
        self._ways: dict[Numbers, int] = {}
        self._arranged: dict[tuple[Numbers, Numbers], list[Dims]] = {}
        self.source = self._state(source, everything)
        self.target = self._state(target, everything)

    def _state(self, sharding: Sharding, everything: frozenset[Axis]) -> State:
        number = {axis: i for i, axis in enumerate(self.axes)}
        numbers = lambda axes: tuple(number[a] for a in refine(axes, everything))  # noqa: E731
        terms = tuple(a for _, a in sharding.partial)
        reduction = sharding.partial[0][0] if terms else ""
        return State(tuple(numbers(d) for d in sharding.dims), tuple(sorted(numbers(terms))), reduction)

    def ways(self, axes: Numbers) -> int:
        found = self._ways.get(axes)
        if found is None:
            found = self._ways[axes] = prod(self.axes[x].size for x in axes)
        return found

    def from_state(self, state: State) -> Iterator[Move]:
        """Yield every move from ``state``."""
        yield from self._all_reduces(state)
        yield from self._to_partials(state)
        for dim, axes in enumerate(state.dims):
            yield from self._moves_onto(state, dim)
            for inner in range(1, len(axes) + 1):
                yield self._gather(state, dim, inner)
                yield from self._exchanges(state, dim, inner)
        yield from self._permutes(state)

    def direct(self) -> Iterator[Move]:
        """Yield a chain that always works: combine all terms, gather dims that differ, then slice."""
        state, target = self.source, self.target
        if move := next(self._all_reduces(state), None):
            yield move
            state = move.to
        for dim, axes in enumerate(state.dims):
            kept = common(axes, target.dims[dim])
            if kept < len(axes):
                yield (move := self._gather(state, dim, len(axes) - kept))
                state = move.to
        for move in self._to_partials(state):
            yield move
            state = move.to
        for dim, axes in enumerate(target.dims):
            rest = axes[len(state.dims[dim]) :]
            if rest:
                yield (move := self._slice(state, dim, rest))
                state = move.to

    def _pending(self, state: State) -> Numbers:
        """Return the axes of terms that the target does not have."""
        if state.reduction != self.target.reduction:
            return state.partial
        return tuple(x for x in state.partial if x not in self.target.partial)

    def _all_reduces(self, state: State) -> Iterator[Move]:
        """Yield all-reduces over all pending axes, over those that split no dim of the target, and over other
        parts.
        """
        pending = self._pending(state)
        scattered = {x for axes in self.target.dims for x in axes}
        plain = tuple(x for x in pending if x not in scattered)
        for axes in dict.fromkeys((pending, plain, *_subsets(pending))):
            if axes:
                yield Move(steps.AllReduce, (), axes, _combined(state, axes))

    def _to_partials(self, state: State) -> Iterator[Move]:
        target = self.target
        if not target.partial or state.reduction not in ("", target.reduction):
            return
        new = self._unused(state, target.partial)
        if new:
            partial = tuple(sorted(state.partial + new))
            yield Move(steps.ToPartial, (), new, State(state.dims, partial, target.reduction))

    def _moves_onto(self, state: State, dim: int) -> Iterator[Move]:
        """Yield slices and reduce-scatters that split ``dim`` over axes that the target has there."""
        wanted, pending = self.target.dims[dim], self._pending(state)
        for axes in _subsets(self._unused(state, wanted)):
            if self._divides(state, dim, axes):
                yield self._slice(state, dim, axes)
        ready = tuple(x for x in wanted if x in pending)
        if self._scatter_anywhere:
            ready += tuple(x for x in pending if x not in ready)
        for axes in _subsets(ready):
            if self._divides(state, dim, axes):
                to = _put(_combined(state, axes), dim, state.dims[dim] + axes)
                yield Move(steps.ReduceScatter, (dim,), axes, to)

    def _exchanges(self, state: State, dim: int, inner: int) -> Iterator[Move]:
        """Yield all-to-alls that move the ``inner`` innermost axes of ``dim`` to other dims."""
        axes = state.dims[dim][-inner:]
        without = _put(state, dim, state.dims[dim][:-inner])
        for other in range(len(state.dims)):
            if other != dim and self._divides(state, other, axes):
                yield Move(steps.AllToAll, (other, dim), axes, _put(without, other, state.dims[other] + axes))

    def _permutes(self, state: State) -> Iterator[Move]:
        """Yield permutes to the target, or to layouts from which a cheaper step leads there."""
        target = self.target
        for dims in self._arrangements(state):
            if dims != state.dims:
                yield self._permute(state, State(dims, state.partial, state.reduction))
        terms = self.ways(state.partial) == self.ways(target.partial) and state.reduction == target.reduction
        if state.partial != target.partial and terms and self._same_cut(state.dims, target.dims):
            yield self._permute(state, target)

    def _arrangements(self, state: State) -> list[Dims]:
        """Return other arrangements of axes on the dims with the same numbers of blocks."""
        lengths = tuple(len(axes) for axes in state.dims)
        free = tuple(x for x in range(len(self.axes)) if self._is_free(x, state.partial))
        if len(free) > MAX_REARRANGED:
            return self._legal([self.target.dims, self._aligned(state)], state)
        key = (tuple(self.ways(axes) for axes in state.dims), lengths + state.partial)
        if key not in self._arranged:
            dealt = [_dealt(order, lengths) for order in permutations(free, sum(lengths))]
            self._arranged[key] = self._legal([*dealt, self.target.dims], state)
        return self._arranged[key]

    def _legal(self, arrangements: list[Dims], state: State) -> list[Dims]:
        """Return the arrangements that split dims as ``state`` does and in which no two axes overlap."""
        found = dict.fromkeys(arrangements)
        return [d for d in found if self._same_cut(d, state.dims) and self._is_legal(d, state)]

    def _aligned(self, state: State) -> Dims:
        """Return the target's axes as far as they fit; axes that the target lacks are innermost."""
        here = [x for axes in state.dims for x in axes]
        spare = [x for x in here if all(x not in axes for axes in self.target.dims)]
        dims: list[Numbers] = []
        for axes, wanted in zip(state.dims, self.target.dims, strict=True):
            room, chosen = self.ways(axes), []
            for x in (*wanted, *spare):
                if room > 1 and room % self.axes[x].size == 0:
                    chosen.append(x)
                    room //= self.axes[x].size
            spare = [x for x in spare if x not in chosen]
            dims.append(tuple(chosen))
        return tuple(dims)

    def _same_cut(self, dims: Dims, others: Dims) -> bool:
        return all(self.ways(a) == self.ways(b) for a, b in zip(dims, others, strict=True))

    def _is_legal(self, dims: Dims, state: State) -> bool:
        """Return whether no two axes of ``dims`` and the state's terms overlap."""
        used = [x for axes in (*dims, state.partial) for x in axes]
        return all(y not in self.clash[x] for i, x in enumerate(used) for y in used[:i])

    def _is_free(self, axis: int, used: Numbers) -> bool:
        return self.clash[axis].isdisjoint(used)

    def _unused(self, state: State, wanted: Numbers) -> Numbers:
        """Return the axes of ``wanted`` that overlap no axis of the state."""
        used = [x for axes in (*state.dims, state.partial) for x in axes]
        return tuple(x for x in wanted if self._is_free(x, tuple(used)))

    def _divides(self, state: State, dim: int, axes: Numbers) -> bool:
        return self.shape[dim] % self.ways(state.dims[dim] + axes) == 0

    def _gather(self, state: State, dim: int, inner: int) -> Move:
        axes = state.dims[dim]
        return Move(steps.AllGather, (dim,), axes[-inner:], _put(state, dim, axes[:-inner]))

    def _slice(self, state: State, dim: int, axes: Numbers) -> Move:
        return Move(steps.Slice, (dim,), axes, _put(state, dim, state.dims[dim] + axes))

    def _permute(self, state: State, to: State) -> Move:
        before, after = (*state.dims, state.partial), (*to.dims, to.partial)
        moved = {x for old, new in zip(before, after, strict=True) if old != new for x in old + new}
        return Move(steps.Permute, (), tuple(sorted(moved)), to)

    def step(self, move: Move, state: State) -> steps.Step:
        """Return the step of ``move`` from ``state``."""
        if move.kind is steps.Permute:
            return steps.Permute(self._sharding(state), self._sharding(move.to))
        axes = merge(tuple(self.axes[x] for x in move.axes))
        reduces = move.kind in (steps.AllReduce, steps.ReduceScatter, steps.ToPartial)
        given = (state.reduction or move.to.reduction,) if reduces else ()
        return move.kind(*move.dims, axes, *given)

    def _sharding(self, state: State) -> Sharding:
        dims = tuple(merge(tuple(self.axes[x] for x in axes)) for axes in state.dims)
        return Sharding(dims, normal_partial(tuple((state.reduction, self.axes[x]) for x in state.partial)))


def common(axes: Numbers, others: Numbers) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(axes, others, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(axes), len(others)))


def _put(state: State, dim: int, axes: Numbers) -> State:
    return State((*state.dims[:dim], axes, *state.dims[dim + 1 :]), state.partial, state.reduction)


def _combined(state: State, axes: Numbers) -> State:
    """Return ``state`` with the terms over ``axes`` combined."""
    partial = tuple(x for x in state.partial if x not in axes)
    return State(state.dims, partial, state.reduction if partial else "")


def _subsets(axes: Numbers) -> Iterator[Numbers]:
    """Yield all non-empty sublists of a short list in its order; for a long list, its prefixes."""
    for length in range(1, len(axes) + 1):
        if len(axes) > 3:
            yield axes[:length]
        else:
            yield from combinations(axes, length)


def _dealt(order: Numbers, lengths: tuple[int, ...]) -> Dims:
    rest = iter(order)
    return tuple(tuple(islice(rest, length)) for length in lengths)
