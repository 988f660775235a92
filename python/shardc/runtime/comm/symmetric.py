"""Small collectives with symmetric memory: PyTorch kernels that read the memory of other GPUs.

They replace NCCL where it takes longer to start than to send. A group has one buffer that all its ranks map.
On its own stream, a collective copies into the buffer and starts an op of ``torch.ops.symm_mem``. The op ends
when all ranks have read, so that the next collective may write. Sums are added in the order of ranks, so they
are equal on all ranks and in every run; this is not known of the switch's own sums, ``multimem``. When a step
is loaded, the kernels are tested with known sums, and all ranks of a group make the same choice.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, cuda

from .. import torch_private
from ..environment import LOCAL_RANK, LOCAL_WORLD_SIZE, SYMMETRIC_BYTES
from ..torch_private import foreach_copy_
from .groups import Group, Groups, Started

ONE_SHOT_BYTES = 128 << 10
"""Size up to which every rank adds up all elements, as in PyTorch's Inductor. Larger sums are distributed."""
SIZES = (2, 4, 8)
"""Sizes of groups for which PyTorch has kernels."""
SUMMED = (torch.float32, torch.bfloat16)
ALIGNED = 16
"""Alignment of the kernels' reads, in bytes."""

kernels = torch.ops.symm_mem


class Unfit(Exception):
    """Raised with the reason why a group keeps using NCCL."""


class Enqueued:
    """Handle of work on another stream. ``wait`` makes the current stream wait for it.

    Until then it keeps references to the tensors that the work uses, because the current stream could
    otherwise reuse their memory too early.
    """

    def __init__(self, event: cuda.Event, *held: Tensor) -> None:
        self._event, self._held = event, held

    def wait(self) -> None:
        cuda.current_stream().wait_event(self._event)
        self._held = ()


@dataclass(frozen=True)
class SymmetricMemory:
    """Buffer of a group, of ``limit_bytes``. ``taken``: counts of the collectives that used it, by name."""

    group_name: str
    buffer: Tensor
    handle: Any
    stream: cuda.Stream
    limit_bytes: int
    taken: Counter[str] = field(default_factory=Counter)

    def adds(self, x: Tensor, op: dist.ReduceOp.RedOpType) -> bool:
        """Return True if sums of such tensors are supported."""
        return op == dist.ReduceOp.SUM and x.dtype in SUMMED and 0 < _bytes(x) <= self.limit_bytes

    def all_reduce(self, out: Tensor) -> Enqueued:
        self.taken["all_reduce"] += 1
        with self._aside(out) as done:
            out.view(-1).copy_(self._summed(out.view(-1)))
        return done

    def reduce_scatter(self, out: Tensor, blocks: Tensor) -> Enqueued:
        """Write this rank's block of the sum of ``blocks`` to ``out``."""
        self.taken["reduce_scatter"] += 1
        with self._aside(out, blocks) as done:
            whole = self._summed(blocks.view(-1))
            out.view(-1).copy_(whole[self.handle.rank * out.numel() :][: out.numel()])
        return done

    def all_gather(self, out: Tensor, block: Tensor) -> Enqueued:
        self.taken["all_gather"] += 1
        with self._aside(out, block) as done:
            count, sizes = block.numel(), (block.numel(),)
            self._own(block.view(-1))
            self.handle.barrier()
            others = [self.handle.get_buffer(r, sizes, block.dtype) for r in range(self.handle.world_size)]
            foreach_copy_(list(out.view(-1).split(count)), others)
            self.handle.barrier()
        return done

    def _summed(self, x: Tensor) -> Tensor:
        mine = self._own(x)
        if _bytes(mine) <= ONE_SHOT_BYTES:
            return kernels.one_shot_all_reduce(mine, "sum", self.group_name)[: x.numel()]
        return kernels.two_shot_all_reduce_(mine, "sum", self.group_name)[: x.numel()]

    def _own(self, x: Tensor) -> Tensor:
        """Copy ``x`` to the buffer's start; return that region, rounded up to align every rank's part."""
        each = ALIGNED * self.handle.world_size
        mine = self.buffer[: -(-_bytes(x) // each) * each].view(x.dtype)
        mine[: x.numel()].copy_(x)
        return mine

    @contextmanager
    def _aside(self, *tensors: Tensor) -> Iterator[Enqueued]:
        """Context that starts work on ``tensors`` on the collectives' stream, after the current stream."""
        event = cuda.Event()
        self.stream.wait_stream(cuda.current_stream())
        with cuda.stream(self.stream):
            yield Enqueued(event, *tensors)
            event.record(self.stream)


@dataclass(frozen=True)
class SymmetricGroup(Group):
    """Group whose small collectives use symmetric memory. Others use c10d."""

    memory: SymmetricMemory

    def all_reduce(self, out: Tensor, op: dist.ReduceOp.RedOpType) -> Started | None:
        return self.memory.all_reduce(out) if self.memory.adds(out, op) else super().all_reduce(out, op)

    def all_gather(self, out: Tensor, block: Tensor) -> Started | None:
        fits = 0 < _bytes(block) <= self.memory.limit_bytes
        return self.memory.all_gather(out, block) if fits else super().all_gather(out, block)

    def reduce_scatter(self, out: Tensor, blocks: Tensor, op: dist.ReduceOp.RedOpType) -> Started | None:
        fits = self.memory.adds(blocks, op) and _bytes(blocks) <= ONE_SHOT_BYTES
        return self.memory.reduce_scatter(out, blocks) if fits else super().reduce_scatter(out, blocks, op)


def use_symmetric_memory(groups: Groups, device: torch.device, nccl: bool) -> list[str]:
    """Give each suitable group a buffer. Return a line on the choice for each group of several ranks."""
    stream = cuda.Stream(device) if nccl and device.type == "cuda" else None
    found: dict[tuple[int, ...], SymmetricMemory | str] = {}
    lines: dict[tuple[int, ...], str] = {}
    for axes, group in groups.items():
        if group.size == 1:
            continue
        key = tuple(sorted(group.ranks))
        if key not in found:
            found[key] = _memory_of(group, device, nccl, stream)
        memory = found[key]
        if isinstance(memory, SymmetricMemory):
            groups[axes] = SymmetricGroup(group.ranks, group.handle, group.place, memory)
        lines[key] = f"ranks {', '.join(map(str, key))}: {_described(memory)}"
    return list(lines.values())


def taken(groups: Groups) -> Counter[str]:
    """Count the collectives that used symmetric memory, by name. In a CUDA graph, only the capture counts."""
    memories = {id(g.memory): g.memory for g in groups.values() if isinstance(g, SymmetricGroup)}
    return sum((memory.taken for memory in memories.values()), Counter())


def _described(memory: SymmetricMemory | str) -> str:
    if isinstance(memory, str):
        return memory
    size = f"{memory.limit_bytes >> 10} KiB"
    return (
        f"by symmetric memory all_reduce of sums in float32 and bfloat16 and all_gather up to {size}, "
        f"reduce_scatter up to {min(ONE_SHOT_BYTES, memory.limit_bytes) >> 10} KiB; the rest by NCCL"
    )


def limit_bytes() -> int:
    """Return the size limit of collectives with symmetric memory, rounded down to whole KiB."""
    return SYMMETRIC_BYTES.get() >> 10 << 10


def _memory_of(
    group: Group, device: torch.device, nccl: bool, stream: cuda.Stream | None
) -> SymmetricMemory | str:
    """Return the group's tested memory, or why it has none: the same on all ranks, which call it together."""
    if not nccl:
        return f"by Gloo (tensors are on {device}; symmetric memory is for GPUs that NCCL connects)"
    limit = limit_bytes()
    if limit <= 0:
        return f"by NCCL (symmetric memory is switched off: {SYMMETRIC_BYTES.name})"
    memory: list[SymmetricMemory] = []
    steps: list[Callable[[], object]] = [
        lambda: check_fit(group, device),
        lambda: memory.append(_rendezvous(group, device, stream, limit)),
        lambda: _try(memory[0]),
    ]
    for step in steps:
        why = ""
        try:
            step()
        except (Unfit, RuntimeError, ImportError, AttributeError) as error:
            why = str(error).strip().partition("\n")[0] or type(error).__name__
        if not agree(not why, group, device):
            return f"by NCCL ({why or 'symmetric memory does not fit another rank of the group'})"
    return memory[0]


def agree(fits: bool, group: Group, device: torch.device) -> bool:
    """Return True if ``fits`` is True on all ranks of the group."""
    flag = torch.tensor([int(fits)], device=device)
    dist.all_reduce(flag, dist.ReduceOp.MIN, group.handle)
    return bool(flag.item())


def check_fit(group: Group, device: torch.device) -> None:
    """Raise Unfit unless the group's GPUs are in one host and can access each other's memory."""
    if torch.version.hip is not None:
        raise Unfit("symmetric memory is not tried on AMD's GPUs")
    if group.size not in SIZES:
        raise Unfit(f"symmetric memory is for groups of {', '.join(map(str, SIZES))}, not of {group.size}")
    _module()
    for name in ("one_shot_all_reduce", "two_shot_all_reduce_"):
        if not hasattr(kernels, name):
            raise Unfit(f"PyTorch {torch.__version__} has no symm_mem.{name}")
    local, own = LOCAL_WORLD_SIZE.get(), LOCAL_RANK.get()
    if len({rank // local for rank in group.ranks}) > 1:
        raise Unfit("its ranks are on several hosts")
    if (cuda.current_device() if device.index is None else device.index) != own:
        raise Unfit(f"local rank {own} is on {device}")
    for other in sorted({rank % local for rank in group.ranks} - {own}):
        if not cuda.can_device_access_peer(own, other):
            raise Unfit(f"cuda:{own} does not reach the memory of cuda:{other}")


def _module() -> ModuleType:
    return torch_private.symmetric_memory


def _rendezvous(group: Group, device: torch.device, stream: cuda.Stream | None, size: int) -> SymmetricMemory:
    assert stream is not None and group.handle is not None
    symmetric, name = _module(), group.handle.group_name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # newer PyTorch warns that it enables groups itself
        symmetric.enable_symm_mem_for_group(name)
    buffer = symmetric.empty(size, dtype=torch.uint8, device=device)
    return SymmetricMemory(name, buffer, symmetric.rendezvous(buffer, name), stream, size)


def _try(memory: SymmetricMemory) -> None:
    """Raise Unfit unless sums and gathers of small integers are right, twice, for each dtype and form."""
    rank, size = memory.handle.rank, memory.handle.world_size
    device, largest = memory.buffer.device, memory.limit_bytes
    for dtype in SUMMED * 2:
        for count in {37, largest // dtype.itemsize}:
            x = torch.arange(count, device=device).remainder(7).add(rank).to(dtype)
            parts = torch.arange(count, device=device).remainder(7).mul(size)
            expected = parts.add(size * (size - 1) // 2).to(dtype)
            memory.all_reduce(x).wait()
            if not torch.equal(x, expected):
                raise Unfit(f"a sum of {dtype} by symmetric memory came out wrong")
        own = torch.full((5,), rank, dtype=dtype, device=device)
        every = torch.empty(size, 5, dtype=dtype, device=device)
        memory.all_gather(every, own).wait()
        wanted = torch.arange(size, device=device).to(dtype)
        scattered = torch.empty(5, dtype=dtype, device=device)
        memory.reduce_scatter(scattered, wanted.repeat_interleave(5)).wait()
        is_scattered = bool((scattered == rank * size).all())
        if not is_scattered or not torch.equal(every, wanted[:, None].expand(size, 5)):
            raise Unfit(f"a gather of {dtype} by symmetric memory came out wrong")
    memory.taken.clear()


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()
