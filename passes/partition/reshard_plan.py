"""Search for the cheapest chain of steps from one layout of a value to another (A*).

    plan_reshard(partial over "tensor", dim 0 on "tensor", ...)  ->  (ReduceScatter(0, (tensor,), "sum"),)

Only space axes take part; loops handle time axes.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from math import prod

from shardc.cost.collective import KINDS
from shardc.cost.links import UNIFORM, LinkModel
from shardc.diagnostics.dialects.sharding import IndivisibleDim
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.reshard_steps import Step
from shardc.dialects.dist.sharding import Sharding
from shardc.passes.partition.reshard_moves import Dims, Move, Moves, Numbers, State, common

MAX_TRIED = 2000
"""Limit of moves to try, after which the best chain so far is taken: about 10 ms. Two axes need a tenth of
it.
"""


def plan_reshard(
    source: Sharding,
    target: Sharding,
    shape: tuple[int, ...],
    mesh: Mesh,
    *,
    links: LinkModel = UNIFORM,
    element_bytes: int = 1,
    where: str | None = None,
) -> tuple[Step, ...]:
    """Return the cheapest chain of steps from ``source`` to ``target``, for a tensor of global ``shape``.

    The cost is the seconds that ``links`` give, then the number of steps. ``element_bytes`` matters only on a
    cluster's links. ``where`` is the user's source line, for errors.

    Raises IndivisibleDim if a layout does not cut the shape into equal blocks. Both must be legal on ``mesh``
    (see ``check_sharding``) and free of time axes; ValueError otherwise.
    """
    for sharding in (source, target):
        for dim, size in enumerate(shape):
            ways = sharding.ways(dim)
            if size % ways:
                raise IndivisibleDim(
                    dim=dim, size=size, shape=list(shape), ways=ways, sharding=sharding, where=where
                )
    return _plan(source, target, shape, mesh, links, element_bytes)


@lru_cache(maxsize=65536)
def _plan(
    source: Sharding,
    target: Sharding,
    shape: tuple[int, ...],
    mesh: Mesh,
    links: LinkModel,
    element_bytes: int,
) -> tuple[Step, ...]:
    for axis in source.used + target.used:
        if mesh.is_time(axis):
            raise ValueError(f"{axis.name!r} is a time axis; reshards go over devices")
    source, target = source.normal(), target.normal()
    if source == target:
        return ()
    return _Search(source, target, shape, element_bytes, links).run()


class _Search:
    """One search, from ``source`` to ``target`` (both normal) of a tensor whose global ``shape`` both divide.

    ``element_bytes`` counts only where ``links`` are a cluster's.
    """

    def __init__(
        self, source: Sharding, target: Sharding, shape: tuple[int, ...], element_bytes: int, links: LinkModel
    ) -> None:
        self._moves = Moves(source, target, shape, scatter_anywhere=not links.is_uniform)
        self._links = links
        self._taken: dict[tuple[str, Numbers, float], float] = {}
        self._bytes = prod(shape) * element_bytes
        self._fastest = links.fastest(self._moves.axes)
        self._target_bytes = self._local_bytes(self._moves.target.dims)
        # A shorter chain wins a tie: a step costs a billionth of moving the whole tensor.
        self._step_cost = max(1e-9 * self._bytes / self._fastest, 1e-15)

    def run(self) -> tuple[Step, ...]:
        """Return the steps of the cheapest chain found, at worst the direct one."""
        source, target = self._moves.source, self._moves.target
        best = list(self._moves.direct())
        bound = self._cost(best)
        reached: dict[State, tuple[float, State | None, Move | None]] = {source: (0.0, None, None)}
        order = count()
        queue = [(0.0, next(order), source)]
        done: set[State] = set()
        tried = 0
        while queue and tried < MAX_TRIED:
            _, _, state = heappop(queue)
            if state == target:
                break
            if state in done:
                continue
            done.add(state)
            cost, local = reached[state][0], self._local_bytes(state.dims)
            for move in self._moves.from_state(state):
                tried += 1
                total = cost + self._seconds(move, local)
                if total > bound or (move.to in reached and reached[move.to][0] <= total):
                    continue
                estimate = total + self._remaining(move.to.dims)
                if estimate > bound:
                    continue
                reached[move.to] = (total, state, move)
                heappush(queue, (estimate, next(order), move.to))
                if move.to == target:
                    bound = total
        return self._steps(self._path(reached) if target in reached else best)

    def _seconds(self, move: Move, local_bytes: float) -> float:
        kind = KINDS.get(move.kind)
        if kind is None:
            return self._step_cost
        key = kind, move.axes, local_bytes
        if key not in self._taken:
            axes, ways = [self._moves.axes[x] for x in move.axes], self._moves.ways(move.axes)
            self._taken[key] = self._links.seconds(kind, axes, ways, local_bytes)
        return self._taken[key] + self._step_cost

    def _remaining(self, dims: Dims) -> float:
        """Return a lower bound of the cost: what the device with the least overlap must receive."""
        own = 1
        for axes, wanted in zip(dims, self._moves.target.dims, strict=True):
            same = common(axes, wanted)
            if same == len(axes):
                continue
            if same < len(wanted):
                # Unless the axes are sub-axes of one axis, some device has nothing of its target block.
                if not any(x in self._moves.clash[y] for x in axes[same:] for y in wanted[same:]):
                    own = 0
            else:
                own *= self._moves.ways(axes[same:])
        missing = self._target_bytes * (1 - 1 / own if own else 1)
        return missing / self._fastest

    def _local_bytes(self, dims: Dims) -> float:
        return self._bytes / prod(self._moves.ways(axes) for axes in dims)

    def _cost(self, moves: list[Move]) -> float:
        states = [self._moves.source, *(move.to for move in moves)]
        return sum(self._seconds(m, self._local_bytes(s.dims)) for m, s in zip(moves, states, strict=False))

    def _path(self, reached: dict[State, tuple[float, State | None, Move | None]]) -> list[Move]:
        moves: list[Move] = []
        state: State | None = self._moves.target
        while state is not None:
            _, state, move = reached[state]
            if move is not None:
                moves.append(move)
        return moves[::-1]

    def _steps(self, moves: list[Move]) -> tuple[Step, ...]:
        states = [self._moves.source, *(move.to for move in moves)]
        return tuple(map(self._moves.step, moves, states))
