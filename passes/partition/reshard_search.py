"""Best-first search for the cheapest chain of reshard steps.

Axes of both layouts are cut to a common refinement and numbered; a state says which stand on each dim, in order, and
which hold partial terms. Moves lead towards the target: axes are added only where it has them, and every collective
takes as many neighbouring axes at once as it can, so one collective over two axes is one move.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import combinations, count, permutations
from math import prod

from shardc.dialects.dist.axis import Axis, merge, refine
from shardc.dialects.dist.sharding import Axes, Sharding, normal_partial
from shardc.passes.partition.links import LinkModel
from shardc.passes.partition.reshard_steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    ToPartial,
)

MAX_EXPANDED = 300
"""States to expand before the best chain found so far is taken."""
MAX_REARRANGED = 4
"""With more axes than this a permute is tried to few arrangements instead of to all."""

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    """The numbers of the axes on each dim, and of those that hold terms of ``reduction``, sorted."""

    dims: tuple[Numbers, ...]
    partial: Numbers
    reduction: str


@dataclass(frozen=True, slots=True)
class Move:
    """One step: its kind, its dims, the numbers of its axes, and the state that it leads to."""

    kind: type
    dims: tuple[int, ...]
    axes: Numbers
    to: State


class ReshardSearch:
    """One search, from ``source`` to ``target`` (both normal) of a tensor of global ``shape``.

    Both divide the shape. ``element_bytes`` counts only where ``links`` have latencies.
    """

    def __init__(
        self, source: Sharding, target: Sharding, shape: tuple[int, ...], element_bytes: int, links: LinkModel
    ) -> None:
        everything = frozenset(source.used) | frozenset(target.used)
        self._axes: Axes = tuple(sorted({a for axis in everything for a in refine((axis,), everything)}))
        self._number = {axis: i for i, axis in enumerate(self._axes)}
        self._size = [axis.size for axis in self._axes]
        self._clash = [
            {j for j, other in enumerate(self._axes) if i == j or axis.overlaps(other)}
            for i, axis in enumerate(self._axes)
        ]
        self._shape = shape
        self._element_bytes = element_bytes
        self._links = links
        self._source = self._state(source, everything)
        self._target = self._state(target, everything)
        # Ties go to the shorter chain: a step counts as a billionth of moving the whole tensor.
        self._step_cost = max(1e-9 * links.seconds(self._axes, prod(shape) * element_bytes), 1e-15)

    def _state(self, sharding: Sharding, everything: frozenset[Axis]) -> State:
        number = lambda axes: tuple(self._number[a] for a in refine(axes, everything))  # noqa: E731
        terms = tuple(a for _, a in sharding.partial)
        reduction = sharding.partial[0][0] if terms else ""
        return State(tuple(number(d) for d in sharding.dims), tuple(sorted(number(terms))), reduction)

    def run(self) -> tuple[Step, ...]:
        """The steps of the cheapest chain found; at worst the direct one."""
        best = self.direct()
        bound = self._cost(best)
        queue: list[tuple[float, int, State]] = [(0.0, 0, self._source)]
        reached: dict[State, tuple[float, State | None, Move | None]] = {self._source: (0.0, None, None)}
        done: set[State] = set()
        order = count(1)
        while queue and len(done) < MAX_EXPANDED:
            cost, _, state = heappop(queue)
            if state in done:
                continue
            if state == self._target:
                return self._steps(self._path(reached))
            done.add(state)
            local = self._local_bytes(state.dims)
            for move in self._moves(state):
                total = cost + self._seconds(move, state, local)
                known = reached.get(move.to)
                if total > bound or (known is not None and known[0] <= total):
                    continue
                reached[move.to] = (total, state, move)
                heappush(queue, (total, next(order), move.to))
                if move.to == self._target:
                    bound = total
        return self._steps(self._path(reached) if self._target in reached else best)

    def direct(self) -> list[Move]:
        """The chain that always works: combine all terms, make whole what lies elsewhere, then cut."""
        moves: list[Move] = []
        state, target = self._source, self._target
        for move in self._reduce_moves(state):
            moves.append(move)
            state = move.to
            break
        for dim, axes in enumerate(state.dims):
            kept = _common(axes, target.dims[dim])
            if len(kept) < len(axes):
                moves.append(self._gather(state, dim, len(axes) - len(kept)))
                state = moves[-1].to
        for move in self._partial_moves(state):
            moves.append(move)
            state = move.to
        for dim, axes in enumerate(target.dims):
            if axes[len(state.dims[dim]) :]:
                moves.append(self._slice(state, dim, axes[len(state.dims[dim]) :]))
                state = moves[-1].to
        return moves

    def _moves(self, state: State) -> Iterator[Move]:
        yield from self._reduce_moves(state)
        yield from self._partial_moves(state)
        for dim in range(len(state.dims)):
            yield from self._moves_onto(state, dim)
            for count in range(1, len(state.dims[dim]) + 1):
                yield self._gather(state, dim, count)
                yield from self._exchanges(state, dim, count)
        yield from self._permutes(state)

    def _pending(self, state: State) -> Numbers:
        """The terms that the target does not have."""
        if state.reduction != self._target.reduction:
            return state.partial
        return tuple(x for x in state.partial if x not in self._target.partial)

    def _reduce_moves(self, state: State) -> Iterator[Move]:
        """All-reduces: of all that is pending, and of the part of it that cuts no dim of the target."""
        pending = self._pending(state)
        scattered = {x for axes in self._target.dims for x in axes}
        plain = tuple(x for x in pending if x not in scattered)
        for axes in dict.fromkeys((pending, plain)):
            if axes:
                yield Move(AllReduce, (), axes, self._less(state, axes))

    def _partial_moves(self, state: State) -> Iterator[Move]:
        target = self._target
        if not target.partial or state.reduction not in ("", target.reduction):
            return
        new = self._unused(state, target.partial)
        if new:
            partial = tuple(sorted(state.partial + new))
            yield Move(ToPartial, (), new, State(state.dims, partial, target.reduction))

    def _moves_onto(self, state: State, dim: int) -> Iterator[Move]:
        """Slices and reduce-scatters that put axes on ``dim`` which the target has there."""
        wanted = self._target.dims[dim]
        for axes in _subsets(self._unused(state, wanted)):
            if self._divides(state, dim, axes):
                yield self._slice(state, dim, axes)
        pending = set(self._pending(state))
        for axes in _subsets(tuple(x for x in wanted if x in pending)):
            if self._divides(state, dim, axes):
                to = _put(self._less(state, axes), dim, state.dims[dim] + axes)
                yield Move(ReduceScatter, (dim,), axes, to)

    def _exchanges(self, state: State, dim: int, count: int) -> Iterator[Move]:
        """All-to-alls that move the ``count`` innermost axes of ``dim`` elsewhere."""
        axes = state.dims[dim][-count:]
        without = _put(state, dim, state.dims[dim][:-count])
        for other in range(len(state.dims)):
            if other != dim and self._divides(state, other, axes):
                yield Move(AllToAll, (other, dim), axes, _put(without, other, state.dims[other] + axes))

    def _permutes(self, state: State) -> Iterator[Move]:
        """Permutes to the target, or to layouts from which a cheaper step leads there."""
        target = self._target
        for dims in dict.fromkeys((target.dims, *self._arrangements(state))):
            if dims != state.dims and self._ways(dims) == self._ways(state.dims):
                yield Move(Permute, (), (), State(dims, state.partial, state.reduction))
        terms = self._ways((state.partial,)) == self._ways((target.partial,)) and state.reduction == target.reduction
        if state.partial != target.partial and terms and self._ways(target.dims) == self._ways(state.dims):
            yield Move(Permute, (), (), target)

    def _arrangements(self, state: State) -> Iterator[tuple[Numbers, ...]]:
        free = [x for x in range(len(self._axes)) if x not in state.partial]
        if len(free) <= MAX_REARRANGED:
            lengths = [len(axes) for axes in state.dims]
            for order in permutations(free, sum(lengths)):
                yield _dealt(order, lengths)
        else:
            yield from self._aligned(state)

    def _aligned(self, state: State) -> Iterator[tuple[Numbers, ...]]:
        """The target's axes as far as they fit, the innermost place left to what has to go."""
        target = self._target
        spare = [x for axes in state.dims for x in axes if all(x not in t for t in target.dims)]
        dims: list[Numbers] = []
        for dim, axes in enumerate(state.dims):
            room, chosen = prod(self._size[x] for x in axes), []
            for x in (*target.dims[dim], *spare):
                if room % self._size[x] == 0 and room > 1 and x not in state.partial:
                    chosen.append(x)
                    room //= self._size[x]
            spare = [x for x in spare if x not in chosen]
            dims.append(tuple(chosen))
        yield tuple(dims)

    def _unused(self, state: State, wanted: Numbers) -> Numbers:
        """Those of ``wanted`` that overlap nothing that the state has."""
        used = {x for axes in (*state.dims, state.partial) for x in axes}
        return tuple(x for x in wanted if used.isdisjoint(self._clash[x]))

    def _divides(self, state: State, dim: int, axes: Numbers) -> bool:
        return self._shape[dim] % prod(self._size[x] for x in state.dims[dim] + axes) == 0

    def _ways(self, groups: tuple[Numbers, ...]) -> list[int]:
        return [prod(self._size[x] for x in group) for group in groups]

    def _gather(self, state: State, dim: int, count: int) -> Move:
        axes = state.dims[dim]
        return Move(AllGather, (dim,), axes[-count:], _put(state, dim, axes[:-count]))

    def _slice(self, state: State, dim: int, axes: Numbers) -> Move:
        return Move(Slice, (dim,), axes, _put(state, dim, state.dims[dim] + axes))

    def _less(self, state: State, axes: Numbers) -> State:
        """``state`` with the terms over ``axes`` combined."""
        partial = tuple(x for x in state.partial if x not in axes)
        return State(state.dims, partial, state.reduction if partial else "")

    def _local_bytes(self, dims: tuple[Numbers, ...]) -> float:
        return prod(self._shape) * self._element_bytes / prod(self._ways(dims))

    def _cost(self, moves: list[Move]) -> float:
        cost, state = 0.0, self._source
        for move in moves:
            cost += self._seconds(move, state, self._local_bytes(state.dims))
            state = move.to
        return cost

    def _seconds(self, move: Move, state: State, local_bytes: float) -> float:
        if move.kind in (Slice, ToPartial):
            return self._step_cost
        step = self._step(move, state)
        return self._links.seconds(step.axes, step.bytes_moved(local_bytes)) + self._step_cost

    def _path(self, reached: dict[State, tuple[float, State | None, Move | None]]) -> list[Move]:
        moves: list[Move] = []
        state: State | None = self._target
        while state is not None:
            _, state, move = reached[state]
            if move is not None:
                moves.append(move)
        return moves[::-1]

    def _steps(self, moves: list[Move]) -> tuple[Step, ...]:
        steps, state = [], self._source
        for move in moves:
            steps.append(self._step(move, state))
            state = move.to
        return tuple(steps)

    def _step(self, move: Move, state: State) -> Step:
        if move.kind is Permute:
            return Permute(self._sharding(state), self._sharding(move.to))
        axes = merge(tuple(self._axes[x] for x in move.axes))
        if move.kind in (AllReduce, ReduceScatter):
            return move.kind(*move.dims, axes, state.reduction)
        if move.kind is ToPartial:
            return ToPartial(axes, move.to.reduction)
        return move.kind(*move.dims, axes)

    def _sharding(self, state: State) -> Sharding:
        dims = tuple(merge(tuple(self._axes[x] for x in axes)) for axes in state.dims)
        return Sharding(dims, normal_partial(tuple((state.reduction, self._axes[x]) for x in state.partial)))


def _put(state: State, dim: int, axes: Numbers) -> State:
    return State((*state.dims[:dim], axes, *state.dims[dim + 1 :]), state.partial, state.reduction)


def _common(axes: Numbers, others: Numbers) -> Numbers:
    """What both begin with."""
    count = 0
    while count < min(len(axes), len(others)) and axes[count] == others[count]:
        count += 1
    return axes[:count]


def _subsets(axes: Numbers) -> Iterator[Numbers]:
    """All non-empty parts of a short list in its order; of a long one those that it begins with."""
    if len(axes) > 3:
        yield from (axes[:count] for count in range(1, len(axes) + 1))
        return
    for count in range(1, len(axes) + 1):
        yield from combinations(axes, count)


def _dealt(order: Numbers, lengths: list[int]) -> tuple[Numbers, ...]:
    groups, start = [], 0
    for length in lengths:
        groups.append(order[start : start + length])
        start += length
    return tuple(groups)
