"""A second oracle: emitted rank programs under PyTorch's ``LocalTensorMode``.

PyTorch runs each line for all ranks and carries out the collectives, with its own arithmetic of ranks and
groups; the first oracle interprets level 3 with ours. The program is the text that an artefact holds, with
f64 in the place of f32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._ops import OpOverload
from torch.distributed._local_tensor import LocalIntNode, LocalTensor, LocalTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch_mlir import ir
from training import Captured, Ranks

from shardc.backends.torch.emit import emit_program
from shardc.runtime.check import STATE_ROLES
from shardc.runtime.comm.collectives import Done, Layout
from shardc.runtime.comm.mesh import Axes, Mesh

functional = torch.ops._c10d_functional


class LocalTensorRanks(Ranks):
    """As :class:`Ranks`, by the emitted program under ``LocalTensorMode``."""

    def __init__(self, step: Captured, module: ir.Module) -> None:
        super().__init__(step, module)
        text = emit_program(module).replace("torch.float32", "torch.float64")
        self._text = "\n".join(line.partition("  # ")[0] for line in text.splitlines())
        space = tuple((axis.name, axis.size) for axis in self._mesh.space)
        time = tuple((axis.name, axis.size) for axis in self._mesh.axes if axis.kind == "time")
        self._ranks = Mesh(space, time)

    def _run(self, blocks: list[list[Tensor]]) -> list[list[Tensor]]:
        size = self._ranks.world_size
        with _fake_processes(size), LocalTensorMode(size) as mode, torch.no_grad():
            names: dict[str, Any] = {}
            exec(compile(self._text, "<program>", "exec"), names)
            names.update({name: _by_rank(value, mode) for name, value in names.items() if _is_ours(value)})
            rank = _Rank(self._ranks)
            given = [_wide(LocalTensor(dict(enumerate(ranks)))) for ranks in blocks]
            outputs = iter(names["step"](rank, *given))
            held = dict(zip((port.key for port in self._arguments), given, strict=True))
            found = []
            for port in self._results:
                if port.role in STATE_ROLES and port.key in held:
                    old = held[port.key]
                    found.append(rank.stored.get(id(old), old))
                else:
                    found.append(next(outputs))
            with mode.disable():
                return [[_on(value, r) for r in range(size)] for value in found]


def _wide(value: Tensor) -> Tensor:
    return value.double() if value.dtype == torch.float32 else value


def _on(value: Any, rank: int) -> Any:
    """A value on a rank; what is no ``LocalTensor`` and no number of one is the same on all."""
    if isinstance(value, LocalTensor):
        return value._local_tensors[rank]
    return value.node._local_ints[rank] if isinstance(value, torch.SymInt) else value


def _is_ours(value: object) -> bool:
    return isinstance(value, OpOverload) and value.namespace == "shardc"


def _by_rank(operator: OpOverload, mode: LocalTensorMode) -> Callable[..., Any]:
    """An operator called once a rank: ours take integers, which differ by rank, where PyTorch's do not."""

    def call(*args: object) -> Any:
        with mode.disable():
            made = [operator(*(_on(arg, r) for arg in args)) for r in sorted(mode.ranks)]
        if isinstance(made[0], Tensor):
            return LocalTensor(dict(enumerate(made)))
        return tuple(LocalTensor(dict(enumerate(each))) for each in zip(*made, strict=True))

    return call


@contextmanager
def _fake_processes(size: int) -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


class _Rank:
    """All ranks of a mesh at once: what a program calls, by PyTorch's functional collectives."""

    device = torch.device("cpu")

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._names: dict[frozenset[tuple[int, ...]], str] = {}
        self.stored: dict[int, Tensor] = {}
        """New values of state, by the ``id`` of the old."""

    def index(self, axes: Axes) -> torch.SymInt | int:
        places = {r: self._mesh.index(r, axes) for r in range(self._mesh.world_size)}
        node = LocalIntNode(places)
        return torch.SymInt(node) if isinstance(node, LocalIntNode) else next(iter(places.values()))

    def store(self, old: Tensor, new: Tensor) -> None:
        self.stored[id(old)] = new

    def all_reduce(self, x: Tensor, *, axes: Axes, reduction: str = "sum", reuse: bool = False) -> Done:
        plain = x.to(torch.uint8) if x.dtype == torch.bool else x
        op = "max" if x.dtype == torch.bool else reduction
        made = functional.all_reduce(plain.contiguous(), op, self._group(axes))
        return Done(functional.wait_tensor(made).to(x.dtype))

    def all_gather(self, x: Tensor, *, dim: int, axes: Axes) -> Done:
        size = self._size(axes)
        made = functional.all_gather_into_tensor(x.unsqueeze(0).contiguous(), size, self._group(axes))
        made = functional.wait_tensor(made)
        return Done(torch.cat([made[n] for n in self._order(axes)], dim))

    def reduce_scatter(self, x: Tensor, *, dim: int, axes: Axes, reduction: str = "sum") -> Done:
        blocks = self._blocks(x, dim, axes)
        made = functional.reduce_scatter_tensor(blocks, reduction, self._size(axes), self._group(axes))
        return Done(functional.wait_tensor(made).squeeze(0))

    def all_to_all(self, x: Tensor, *, split_dim: int, concat_dim: int, axes: Axes) -> Done:
        blocks, sizes = self._blocks(x, split_dim, axes), [1] * self._size(axes)
        made = functional.all_to_all_single(blocks, sizes, sizes, self._group(axes))
        made = functional.wait_tensor(made)
        return Done(torch.cat([made[n] for n in self._order(axes)], concat_dim))

    def broadcast(self, x: Tensor, *, axes: Axes, root: int = 0) -> Done:
        return self._from(x, {r: self._mesh.peers(r, axes)[root] for r in range(self._mesh.world_size)})

    def permute(self, x: Tensor, *, source: Layout, target: Layout, axes: Axes) -> Done:
        place = lambda r, layout: tuple(self._mesh.index(r, part) for part in layout)  # noqa: E731
        sources = {}
        for r in range(self._mesh.world_size):
            have = [s for s in self._mesh.peers(r, axes) if place(s, source) == place(r, target)]
            sources[r] = r if r in have else have[0]
        return self._from(x, sources)

    def exchange(self, x: Tensor, *, sources: Sequence[int], axes: Axes) -> Done:
        found = {}
        for r in range(self._mesh.world_size):
            source = sources[self._mesh.index(r, axes)]
            found[r] = None if source < 0 else self._mesh.peers(r, axes)[source]
        return self._from(x, found)

    def _from(self, x: Any, sources: dict[int, int | None]) -> Done:
        """The value of each rank's source; zeros where it has none."""
        parts = x._local_tensors
        return Done(
            LocalTensor(
                {r: torch.zeros_like(parts[r]) if s is None else parts[s].clone() for r, s in sources.items()}
            )
        )

    def _blocks(self, x: Tensor, dim: int, axes: Axes) -> Tensor:
        """The blocks along a dim, stacked in the order of c10d's ranks."""
        blocks, order = x.chunk(self._size(axes), dim), self._order(axes)
        return torch.stack([blocks[order.index(n)] for n in range(len(order))]).contiguous()

    def _order(self, axes: Axes) -> list[int]:
        """The place among sorted ranks of each index over ``axes``."""
        ranks = self._mesh.peers(0, axes)
        return [sorted(ranks).index(r) for r in ranks]

    def _size(self, axes: Axes) -> int:
        return len(self._mesh.peers(0, axes))

    def _group(self, axes: Axes) -> str:
        """PyTorch's name for the groups over ``axes``."""
        groups = frozenset(tuple(sorted(group)) for group in self._mesh.partition(axes))
        if groups not in self._names:
            mine = sorted(self._mesh.peers(0, axes))
            self._names[groups] = dist.new_group(mine).group_name
        return self._names[groups]
