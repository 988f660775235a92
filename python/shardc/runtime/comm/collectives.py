"""What a rank program calls: collectives over mesh axes, each returning a handle to wait for.

Plain c10d with ``async_op=True`` over Gloo or NCCL. A collective works on dim 0 of contiguous memory; for
another dim the blocks are moved to the front, which copies only where the dims before it are not all of size
1.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import CommunicationError
from ..kernels import pool
from ..source import user_line
from .flights import Flights
from .groups import Group, Started
from .mesh import Axes, Mesh

REDUCE = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}

NOBODY = -1
"""The sender of a rank to which nothing is sent."""


class Done:
    """The handle of a collective that had nothing to do: one rank alone."""

    __slots__ = ("value",)

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def wait(self) -> Tensor:
        return self.value


class Pending:
    """A started collective. ``wait``, once, gives its result; CommunicationError if another rank is gone.

    ``start`` is what was started: its name, its group, and the program's file and line. With ``flights``,
    whether the device gets past it is watched.
    """

    __slots__ = ("finish", "flights", "kept", "result", "start", "work")

    def __init__(
        self,
        work: Started | None,
        kept: Tensor,
        result: Tensor,
        finish: Finish | None,
        start: Start,
        flights: Flights | None = None,
    ) -> None:
        self.work, self.kept, self.result, self.finish = work, kept, result, finish
        self.start, self.flights = start, flights

    def wait(self) -> Tensor:
        try:
            if self.work is not None:
                self.work.wait()
        except RuntimeError as error:  # c10d has no class of its own for Gloo's errors
            raise CommunicationError(str(error), described(self.start)) from error
        if self.flights is not None:
            self.flights.passed(described(self.start))
        return self.finish(self.result) if self.finish else self.result


Handle = Done | Pending
Start = tuple[str, Group, str, int]
Finish = Callable[[Tensor], Tensor]
Layout = tuple[Axes, ...]


def described(start: Start) -> str:
    """``all_reduce of ranks 0, 1 (model.py:12)``."""
    name, group, file, line = start
    where = user_line(file, line)
    return f"{name} of ranks {', '.join(map(str, group.ranks))}{f' ({where})' if where else ''}"


class Recorder(Protocol):
    """Is told of collectives while a step is recorded (:mod:`..report.recorder`)."""

    def started(self, pending: Pending) -> Pending: ...


class Message:
    """What another pipeline rank sends. ``wait``, once, gives its tensors or raises CommunicationError."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Pending]) -> None:
        self.parts = parts

    def wait(self) -> list[Tensor]:
        parts, self.parts = self.parts, []
        return [part.wait() for part in parts]


class Rank:
    """One rank of the mesh: number, device, groups. Collectives are called by all ranks alike."""

    def __init__(
        self,
        mesh: Mesh,
        number: int,
        device: torch.device,
        groups: Mapping[Axes, Group],
        flights: Flights | None = None,
    ) -> None:
        self.mesh, self.number, self.device, self._groups = mesh, number, device, groups
        self._flights = flights
        self._sent: dict[tuple[Axes, int], list[list[Pending]]] = defaultdict(list)
        """The messages to each rank, of several tensors each, that nobody has waited for yet."""
        self._late: list[tuple[Tensor, Tensor]] | None = None
        self.recorder: Recorder | None = None
        """Of the step that is being recorded."""

    def index(self, axes: Axes) -> int:
        """This rank's place over ``axes``."""
        return self.mesh.index(self.number, axes)

    def stacked(self, parts: Sequence[Tensor], dim: int, share: range, count: int) -> Tensor:
        """The blocks ``parts`` of iterations ``share`` of ``count``, joined; zeros for those of others."""
        blocks = [torch.zeros_like(parts[0])] * count
        blocks[share.start : share.stop] = parts
        return torch.cat(blocks, dim)

    def store(self, old: Tensor, new: Tensor) -> None:
        """Make ``new`` the value of the state tensor ``old``; the old memory is given back at once.

        Whoever holds ``old`` (a DTensor that the user sees) sees the new value.
        """
        if self._late is not None:
            self._late.append((old, new))
        else:
            old.data = new if new.is_contiguous() else new.contiguous()

    @contextmanager
    def late_stores(self) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """Store nothing inside of the block: its list has what the caller is to copy, in order."""
        self._late = []
        try:
            yield self._late
        finally:
            self._late = None

    def send(self, values: Sequence[Tensor], *, to: int, axes: Axes) -> None:
        """Start sending ``values`` to the rank with index ``to`` over ``axes``.

        Two ranks start what goes between them, both ways, in one order: messages have no tags.
        """
        group = self._groups[axes]
        message = []
        for x in values:
            block = _plain(x).contiguous()
            message.append(self._pending("send", group, group.send(block, to), block, block, None))
        self._sent[axes, to].append(message)

    def receive(
        self, kinds: Sequence[tuple[tuple[int, ...], torch.dtype]], *, source: int, axes: Axes
    ) -> Message:
        """Start receiving tensors of these shapes and dtypes from the rank with index ``source``."""
        group = self._groups[axes]
        parts = []
        for shape, dtype in kinds:
            like = torch.empty(0, dtype=dtype, device=self.device)
            block = _plain(_empty(shape, like))
            work = group.receive(block, source)
            parts.append(self._pending("receive", group, work, block, block, _typed(like)))
        return Message(parts)

    def finish_sends(self, count: int, *, to: int, axes: Axes) -> None:
        """Wait until the next ``count`` messages to the rank with index ``to`` are on their way, and let go
        of what was sent.
        """
        sent = self._sent[axes, to]
        for message in sent[:count]:
            for pending in message:
                pending.wait()
        del sent[:count]

    def finish_all_sends(self) -> None:
        """Wait until all that was sent is on its way: the end of a step."""
        for (axes, to), sent in self._sent.items():
            self.finish_sends(len(sent), to=to, axes=axes)

    def all_reduce(self, x: Tensor, *, axes: Axes, reduction: str = "sum", reuse: bool = False) -> Handle:
        """The combined value of all ranks over ``axes``. With ``reuse`` it may take the place of ``x``."""
        group = self._groups[axes]
        if group.size == 1:
            return Done(x)
        out = _plain(x if reuse and x.is_contiguous() else _empty(x.shape, x).copy_(x))
        work = group.all_reduce(out, _op(reduction, x))
        return self._pending("all_reduce", group, work, out, out, _typed(x))

    def all_gather(self, x: Tensor, *, dim: int, axes: Axes) -> Handle:
        """The blocks of all ranks over ``axes``, concatenated along ``dim`` in the order of their index."""
        group = self._groups[axes]
        if group.size == 1:
            return Done(x)
        block = _plain(x).contiguous()
        out = _empty((group.size, *block.shape), block)
        work = group.all_gather(out.flatten(0, 1) if x.dim() else out, block)
        return self._pending("all_gather", group, work, block, out, _joined(group, dim, x))

    def reduce_scatter(self, x: Tensor, *, dim: int, axes: Axes, reduction: str = "sum") -> Handle:
        """This rank's block along ``dim`` of the combined value of all ranks over ``axes``."""
        group = self._groups[axes]
        if group.size == 1:
            return Done(x)
        blocks = group.sorted(_split(_plain(x), dim, group.size)).contiguous()
        out = _empty(blocks.shape[1:], blocks)
        work = group.reduce_scatter(out, blocks.flatten(0, 1) if out.dim() else blocks, _op(reduction, x))
        return self._pending("reduce_scatter", group, work, blocks, out, _typed(x))

    def all_to_all(self, x: Tensor, *, split_dim: int, concat_dim: int, axes: Axes) -> Handle:
        """Cut ``split_dim`` into a block for each rank, and join what they send along ``concat_dim``."""
        group = self._groups[axes]
        if group.size == 1:
            return Done(x)
        blocks = group.sorted(_split(_plain(x), split_dim, group.size)).contiguous()
        out = torch.empty_like(blocks)
        work = group.all_to_all(out.view(-1), blocks.view(-1))
        return self._pending("all_to_all", group, work, blocks, out, _joined(group, concat_dim, x))

    def broadcast(self, x: Tensor, *, axes: Axes, root: int = 0) -> Handle:
        """The value of the rank with index ``root`` over ``axes``."""
        group = self._groups[axes]
        if group.size == 1:
            return Done(x)
        source = group.ranks[root]
        out = _plain(x).contiguous() if source == self.number else torch.empty_like(_plain(x).contiguous())
        return self._pending("broadcast", group, group.broadcast(out, source), out, out, _typed(x))

    def permute(self, x: Tensor, *, source: Layout, target: Layout, axes: Axes) -> Handle:
        """The block that layout ``target`` gives this rank, from the rank that has it in ``source``."""
        group = self._groups[axes]
        work, pack, out = self._trade(group, x, self._senders(group, source, target))
        return self._pending("permute", group, work, pack, out, _typed(x))

    def exchange(self, x: Tensor, *, sources: Sequence[int], axes: Axes) -> Handle:
        """The ``x`` of the rank with index ``sources[i]`` over ``axes``, for the rank with index ``i``; zeros
        where that is -1.
        """
        group = self._groups[axes]
        if group.size == 1:
            return Done(x)
        senders = {r: group.ranks[s] if s >= 0 else NOBODY for r, s in zip(group.ranks, sources, strict=True)}
        work, pack, out = self._trade(group, x, senders)
        return self._pending("exchange", group, work, pack, out, _typed(x))

    def _trade(
        self, group: Group, x: Tensor, senders: Mapping[int, int]
    ) -> tuple[Started | None, Tensor, Tensor]:
        """Start giving each rank of the group the ``x`` of its sender: what is sent, and what it becomes."""
        sends = [int(senders[to] == self.number) for to in sorted(group.ranks)]
        receives = [int(senders[self.number] == r) for r in sorted(group.ranks)]
        block = _plain(x).contiguous()
        pack = block.expand(sum(sends), *block.shape).contiguous().view(-1)
        out = torch.zeros_like(block) if senders[self.number] == NOBODY else torch.empty_like(block)
        sizes = [[n * block.numel() for n in counts] for counts in (receives, sends)]
        received = out.view(-1) if any(receives) else out.view(-1)[:0]
        return group.all_to_all(received, pack, *sizes), pack, out

    def _pending(
        self, name: str, group: Group, work: Started | None, kept: Tensor, out: Tensor, finish: Finish | None
    ) -> Pending:
        caller = sys._getframe(2)  # the program's line
        start = (name, group, caller.f_code.co_filename, caller.f_lineno)
        pending = Pending(work, kept, out, finish, start, self._flights)
        return pending if self.recorder is None else self.recorder.started(pending)

    def _senders(self, group: Group, source: Layout, target: Layout) -> dict[int, int]:
        """The rank that sends to each rank of the group: itself if it has the block, else holders in turn."""
        place = lambda r, layout: tuple(self.mesh.index(r, axes) for axes in layout)  # noqa: E731
        holders: dict[tuple[int, ...], list[int]] = {}
        for r in group.ranks:
            holders.setdefault(place(r, source), []).append(r)
        senders, turn = {}, dict.fromkeys(holders, 0)
        for r in group.ranks:
            block = place(r, target)
            have = holders[block]
            senders[r] = r if r in have else have[turn[block] % len(have)]
            turn[block] += r not in have
        return senders


def _empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """New contiguous memory of the dtype and device of ``like``; on a CPU of the pool, if it is large."""
    return pool.contiguous(tuple(shape), like.dtype) if like.device.type == "cpu" else like.new_empty(shape)


def _plain(x: Tensor) -> Tensor:
    """``x`` with a dtype that every backend communicates: bool as bytes, complex as pairs.

    Never ``x`` itself: a state tensor may get other memory while a collective still reads this.
    """
    if x.dtype == torch.bool:
        return x.contiguous().view(torch.uint8)
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x.detach()


def _retype(out: Tensor, x: Tensor) -> Tensor:
    if x.dtype == torch.bool:
        return out.view(torch.bool)
    return torch.view_as_complex(out.contiguous()) if x.is_complex() else out


def _typed(x: Tensor) -> Finish | None:
    """The way back from ``_plain``, None where there is none to go."""
    if x.dtype != torch.bool and not x.is_complex():
        return None
    like = x.new_empty(0)
    return lambda out: _retype(out, like)


def _joined(group: Group, dim: int, x: Tensor) -> Finish:
    """From what the ranks of a group sent to their blocks along ``dim``, in the type of ``x``."""
    like = x.new_empty(0)
    return lambda parts: _retype(_join(group.ordered(parts), dim), like)


def _op(reduction: str, x: Tensor) -> dist.ReduceOp.RedOpType:
    # The sum of truth values is "any"; as bytes it would leave values that are no truth values.
    return REDUCE["max" if x.dtype == torch.bool and reduction == "sum" else reduction]


def _split(x: Tensor, dim: int, parts: int) -> Tensor:
    """``[.., parts * n, ..]`` as ``[parts, .., n, ..]``, a view."""
    return x.unflatten(dim, (parts, -1)).movedim(dim, 0)


def _join(blocks: Tensor, dim: int) -> Tensor:
    """``[parts, .., n, ..]`` as ``[.., parts * n, ..]``; a view if all dims before ``dim`` are of size 1."""
    shape = list(blocks.shape[1:])
    shape[dim] *= blocks.shape[0]
    return blocks.view(shape) if prod(shape[:dim]) == 1 else blocks.movedim(0, dim).reshape(shape)
