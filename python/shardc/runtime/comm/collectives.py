"""Collectives over mesh axes for rank programs. Each returns a handle to wait for.

They call c10d with ``async_op=True``, over Gloo or NCCL. c10d's collectives work on dim 0 of contiguous
memory. For another dim, blocks are moved to dim 0, which copies unless all dims before it have size 1.
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
from ..source import line_of, user_line
from .flights import Flights
from .groups import Group, Started
from .mesh import Axes, Mesh

REDUCE = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}

NOBODY = -1
"""Sender of a rank that receives nothing."""


class Done:
    """Handle of a collective over one rank, which has nothing to do."""

    __slots__ = ("value",)

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def wait(self) -> Tensor:
        return self.value


class Pending:
    """Started collective. Call ``wait`` once for its result. It raises CommunicationError if a rank is gone.

    ``start``: the collective's name, its group, and the program's file and line. ``flights``: records the
    collective, to detect that the device is stuck in it.
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
        except RuntimeError as error:  # c10d has no special class for Gloo's errors
            raise CommunicationError(str(error), described(self.start)) from error
        if self.flights is not None:
            self.flights.passed(described(self.start))
        return self.finish(self.result) if self.finish else self.result


Handle = Done | Pending
Start = tuple[str, Group, str, int]
Finish = Callable[[Tensor], Tensor]
Layout = tuple[Axes, ...]


def described(start: Start) -> str:
    """Describe a collective, as ``all_reduce of ranks 0, 1 (model.py:12)``."""
    name, group, file, line = start
    where = user_line(file, line)
    return f"{name} of ranks {', '.join(map(str, group.ranks))}{f' ({where})' if where else ''}"


class Recorder(Protocol):
    """Recorder of a step's collectives (:mod:`..report.recorder`)."""

    def started(self, pending: Pending) -> Pending: ...


class Message:
    """Message from or to another pipeline rank. Call ``wait`` once for its tensors. Raises
    CommunicationError.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: list[Pending]) -> None:
        self.parts = parts

    def wait(self) -> list[Tensor]:
        parts, self.parts = self.parts, []
        return [part.wait() for part in parts]


class Rank:
    """Rank of the mesh, with its number, device and groups. All ranks of a group must call a collective."""

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
        """Messages to each rank, of several tensors each, that were not waited for yet."""
        self._late: list[tuple[Tensor, Tensor]] | None = None
        self.recorder: Recorder | None = None
        """Recorder, while a step is recorded."""

    def index(self, axes: Axes) -> int:
        """Return this rank's index over ``axes``."""
        return self.mesh.index(self.number, axes)

    def stacked(self, parts: Sequence[Tensor], dim: int, share: range, count: int) -> Tensor:
        """Join the blocks ``parts`` of the iterations ``share`` of ``count``, with zeros for all others."""
        blocks = [torch.zeros_like(parts[0])] * count
        blocks[share.start : share.stop] = parts
        return torch.cat(blocks, dim)

    def store(self, old: Tensor, new: Tensor) -> None:
        """Make ``new`` the value of the state tensor ``old``, and free the old memory at once.

        References to ``old``, such as the user's DTensors, see the new value.
        """
        if self._late is not None:
            self._late.append((old, new))
        else:
            old.data = new if new.is_contiguous() else new.contiguous()

    @contextmanager
    def late_stores(self) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """Context in which :meth:`store` only appends to a list of (old, new), for the caller to copy."""
        self._late = []
        try:
            yield self._late
        finally:
            self._late = None

    def send(self, values: Sequence[Tensor], *, to: int, axes: Axes, kept: bool = False) -> Message:
        """Start sending ``values`` to the rank with index ``to`` over ``axes``.

        Messages have no tags. So two ranks must start all their messages to each other in the same order.
        With ``kept`` the caller waits for the returned message; otherwise :meth:`finish_sends` does.
        """
        group = self._groups[axes]
        message = []
        for x in values:
            block = _plain(x).contiguous()
            message.append(self._pending("send", group, group.send(block, to), block, block, None))
        if not kept:
            self._sent[axes, to].append(message)
        return Message(message)

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
        """Wait until the next ``count`` messages to the rank with index ``to`` are sent, and free them."""
        sent = self._sent[axes, to]
        for message in sent[:count]:
            for pending in message:
                pending.wait()
        del sent[:count]

    def finish_all_sends(self) -> None:
        """Wait, at the end of a step, until all messages are sent."""
        for (axes, to), sent in self._sent.items():
            self.finish_sends(len(sent), to=to, axes=axes)

    def all_reduce(self, x: Tensor, *, axes: Axes, reduction: str = "sum", reuse: bool = False) -> Handle:
        """Return the reduced value of all ranks over ``axes``. With ``reuse`` it may overwrite ``x``."""
        group = self._groups[axes]
        if group.size == 1:
            return Done(x)
        out = _plain(x if reuse and x.is_contiguous() else _empty(x.shape, x).copy_(x))
        work = group.all_reduce(out, _op(reduction, x))
        return self._pending("all_reduce", group, work, out, out, _typed(x))

    def all_gather(self, x: Tensor, *, dim: int, axes: Axes) -> Handle:
        """Concatenate the blocks of all ranks over ``axes`` along ``dim``, in the order of their index."""
        group = self._groups[axes]
        if group.size == 1:
            return Done(x)
        block = _plain(x).contiguous()
        out = _empty((group.size, *block.shape), block)
        work = group.all_gather(out.flatten(0, 1) if x.dim() else out, block)
        return self._pending("all_gather", group, work, block, out, _joined(group, dim, x))

    def reduce_scatter(self, x: Tensor, *, dim: int, axes: Axes, reduction: str = "sum") -> Handle:
        """Return this rank's block, along ``dim``, of the reduced value of all ranks over ``axes``."""
        group = self._groups[axes]
        if group.size == 1:
            return Done(x)
        blocks = group.sorted(_split(_plain(x), dim, group.size)).contiguous()
        out = _empty(blocks.shape[1:], blocks)
        work = group.reduce_scatter(out, blocks.flatten(0, 1) if out.dim() else blocks, _op(reduction, x))
        return self._pending("reduce_scatter", group, work, blocks, out, _typed(x))

    def all_to_all(self, x: Tensor, *, split_dim: int, concat_dim: int, axes: Axes) -> Handle:
        """Split ``split_dim`` into a block for each rank, and join received blocks along ``concat_dim``."""
        group = self._groups[axes]
        if group.size == 1:
            return Done(x)
        blocks = group.sorted(_split(_plain(x), split_dim, group.size)).contiguous()
        out = torch.empty_like(blocks)
        work = group.all_to_all(out.view(-1), blocks.view(-1))
        return self._pending("all_to_all", group, work, blocks, out, _joined(group, concat_dim, x))

    def broadcast(self, x: Tensor, *, axes: Axes, root: int = 0) -> Handle:
        """Return the value of the rank with index ``root`` over ``axes``."""
        group = self._groups[axes]
        if group.size == 1:
            return Done(x)
        source = group.ranks[root]
        out = _plain(x).contiguous() if source == self.number else torch.empty_like(_plain(x).contiguous())
        return self._pending("broadcast", group, group.broadcast(out, source), out, out, _typed(x))

    def permute(self, x: Tensor, *, source: Layout, target: Layout, axes: Axes) -> Handle:
        """Return this rank's block under the layout ``target``, from a rank that has it under ``source``."""
        group = self._groups[axes]
        work, pack, out = self._trade(group, x, self._senders(group, source, target))
        return self._pending("permute", group, work, pack, out, _typed(x))

    def exchange(self, x: Tensor, *, sources: Sequence[int], axes: Axes) -> Handle:
        """Give the rank with index ``i`` over ``axes`` the ``x`` of the rank with index ``sources[i]``.

        A source of -1 gives zeros.
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
        """Start giving each rank of the group the ``x`` of its sender. Return work, input and output."""
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
        start = (name, group, caller.f_code.co_filename, line_of(caller))
        pending = Pending(work, kept, out, finish, start, self._flights)
        return pending if self.recorder is None else self.recorder.started(pending)

    def _senders(self, group: Group, source: Layout, target: Layout) -> dict[int, int]:
        """Return rank -> its sender: itself if it has the block, otherwise the holders in rotation."""
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
    """Allocate contiguous memory with the dtype and device of ``like``; large CPU memory from the pool."""
    return pool.contiguous(tuple(shape), like.dtype) if like.device.type == "cpu" else like.new_empty(shape)


def _plain(x: Tensor) -> Tensor:
    """View ``x`` with a dtype that every backend supports: bool as bytes, complex as pairs.

    It is never ``x`` itself, since a state tensor may get other memory while a collective still reads this.
    """
    if x.dtype == torch.bool:
        return x.contiguous().view(torch.uint8)
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x.detach()


def _retype(out: Tensor, x: Tensor) -> Tensor:
    if x.dtype == torch.bool:
        return out.view(torch.bool)
    return torch.view_as_complex(out.contiguous()) if x.is_complex() else out


def _typed(x: Tensor) -> Finish | None:
    """Return the inverse of ``_plain``; None if ``_plain`` keeps the dtype."""
    if x.dtype != torch.bool and not x.is_complex():
        return None
    like = x.new_empty(0)
    return lambda out: _retype(out, like)


def _joined(group: Group, dim: int, x: Tensor) -> Finish:
    """Return a function that joins the ranks' parts along ``dim``, with the dtype of ``x``."""
    like = x.new_empty(0)
    return lambda parts: _retype(_join(group.ordered(parts), dim), like)


def _op(reduction: str, x: Tensor) -> dist.ReduceOp.RedOpType:
    # The sum of bools is "any". A sum of bytes would give values other than 0 and 1.
    return REDUCE["max" if x.dtype == torch.bool and reduction == "sum" else reduction]


def _split(x: Tensor, dim: int, parts: int) -> Tensor:
    """View ``[.., parts * n, ..]`` as ``[parts, .., n, ..]``."""
    return x.unflatten(dim, (parts, -1)).movedim(dim, 0)


def _join(blocks: Tensor, dim: int) -> Tensor:
    """Turn ``[parts, .., n, ..]`` into ``[.., parts * n, ..]``: a view if dims before ``dim`` have size 1."""
    shape = list(blocks.shape[1:])
    shape[dim] *= blocks.shape[0]
    return blocks.view(shape) if prod(shape[:dim]) == 1 else blocks.movedim(0, dim).reshape(shape)
