"""Check that sends and receives match and never deadlock, for several kinds of transport."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal, NoReturn

from shardc.diagnostics.passes.pipeline import BadTransfers, TooManyBuffers
from shardc.dialects.pipe.action import Action, Collective, Step, Steps, Transfer
from shardc.dialects.pipe.dependence import Dependences
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.ranks.transfers import eviction_transfers, transfer

Mode = Literal["blocking", "batched", "buffered", "paired"]
"""When a rank waits at a send or receive.

``blocking``: until the other rank reaches it, too. ``batched``: the same, but adjacent transfers of a list
wait together. ``buffered``: sends do not wait, and a receive waits for its send. ``paired``: no waiting, but
all transfers between two ranks run one after the other, and an action waits for its operands (streams of
NCCL).
"""


def check_transfers(
    schedule: Schedule, steps: Steps, mode: Mode = "blocking", room: int | None = None
) -> None:
    """Simulate ``steps``, the ranks' lists of actions and transfers of ``schedule``.

    Collectives do not wait for transfers: see :mod:`shardc.passes.pipeline.checks.check_collectives`.
    ``room`` is the number of received values that a rank can buffer at a time. Raises BadTransfers,
    TooManyBuffers.
    """
    _Machine(schedule, steps, mode).run()
    dependences = Dependences(schedule)
    for rank, row in enumerate(steps):
        for step, kept in _kept(schedule, dependences, row):
            if room is not None and kept > room:
                raise TooManyBuffers(schedule=schedule.name, rank=rank, step=step, kept=kept, room=room)


def peak_buffers(schedule: Schedule, steps: Steps) -> list[int]:
    """Return, for each rank, the largest number of received and unread values at a time. Raises
    BadTransfers.
    """
    _Machine(schedule, steps, "buffered").run()
    dependences = Dependences(schedule)
    return [max((kept for _, kept in _kept(schedule, dependences, row)), default=0) for row in steps]


def _kept(schedule: Schedule, dependences: Dependences, row: Sequence[Step]) -> Iterator[tuple[Step, int]]:
    """Yield each step of a rank with the number of received values during it, including those that it
    reads.
    """
    rank_of, needs = schedule.rank_of, dependences.needs
    evicted = {(eviction.stage, eviction.micro_batch) for eviction in schedule.evictions}
    kept = 0
    for step in row:
        if isinstance(step, Transfer):
            kept += not step.sends
        yield step, kept
        if isinstance(step, Action):
            kept -= sum(rank_of[needed.stage] != rank_of[step.stage] for needed in needs(step))
            kept -= (step.stage, step.micro_batch) in evicted and step.kind in ("B", "I")
        kept -= isinstance(step, Transfer) and step.kind == "RETURN"


class _Machine:
    """Simulator of ranks: each posts its next transfers, and continues when they have ended."""

    def __init__(self, schedule: Schedule, steps: Steps, mode: Mode) -> None:
        self._schedule, self._steps, self._mode = schedule, steps, mode
        self._rank_of, self._needs = schedule.rank_of, Dependences(schedule).needs
        self._partner: dict[Transfer, Transfer] = {}
        self._made_by: dict[Transfer, Step] = {}
        self._guest = {(e.stage, e.micro_batch): e.rank for e in schedule.evictions}
        self._reads: dict[Action, list[Transfer]] = {}
        for reader in schedule.actions():
            for made in self._needs(reader):
                if self._rank_of[made.stage] != self._rank_of[reader.stage]:
                    send, receive = transfer(made, reader, schedule)
                    self._partner |= {send: receive, receive: send}
                    self._made_by[send] = made
                    self._reads.setdefault(reader, []).append(receive)
        for eviction in schedule.evictions:
            (out, accept), (back, load) = eviction_transfers(eviction)
            self._partner |= {out: accept, accept: out, back: load, load: back}
            backward = Dependences(schedule).backward(eviction.stage, eviction.micro_batch)
            self._made_by |= {out: Action(eviction.stage, "F", eviction.micro_batch), back: accept}
            self._reads.setdefault(backward, []).append(load)
        self._posted, self._done = set[Transfer](), set[Step]()
        self._lines: dict[tuple[int, int], list[Transfer]] = {}
        """(rank, other rank) -> the transfers between them that the rank has started and not ended."""

    def run(self) -> None:
        """Run all lists to their ends. Raises BadTransfers at a deadlock."""
        self._pair()
        at, moved = [0] * len(self._steps), True
        while moved:
            moved = self._mode == "paired" and self._move_lines()
            for rank, steps in enumerate(self._steps):
                while at[rank] < len(steps) and self._starts(rank, group := self._group(steps, at[rank])):
                    posted = len(self._posted)
                    self._posted.update(step for step in group if isinstance(step, Transfer))
                    moved = moved or len(self._posted) > posted
                    if self._mode == "paired" and isinstance(group[0], Transfer):
                        self._lines.setdefault((rank, self._other(group[0], rank)), []).append(group[0])
                    elif not all(map(self._ends, group)):
                        break
                    else:
                        self._done.update(group)
                    at[rank] += len(group)
                    moved = True
        for rank, steps in enumerate(self._steps):
            if at[rank] < len(steps):
                self._refuse(*self._why(rank, at))

    def _move_lines(self) -> bool:
        """End the transfers that both ranks have reached. Return whether there were any."""
        moved = False
        for (rank, other), mine in self._lines.items():
            theirs = self._lines.get((other, rank), [])
            while rank < other and mine and theirs and self._partner[mine[0]] == theirs[0]:
                self._done.update((mine.pop(0), theirs.pop(0)))
                moved = True
        return moved

    def _group(self, steps: Sequence[Step], start: int) -> list[Step]:
        """Return the steps that the rank starts together: one, or a batch of transfers."""
        if self._mode != "batched" or not isinstance(steps[start], Transfer):
            return [steps[start]]
        return [*itertools.takewhile(lambda step: isinstance(step, Transfer), steps[start:])]

    def _starts(self, rank: int, group: list[Step]) -> bool:
        return all(self._lacks(rank, step) is None for step in group)

    def _lacks(self, rank: int, step: Step) -> Step | None:
        """Return a step that the rank must run before ``step`` and has not run, or None."""
        if isinstance(step, Transfer):
            before: list[Step] = [self._made_by[step]] if step.sends else []
        elif isinstance(step, Collective):
            before = []
        else:
            before = [n for n in self._needs(step) if self._rank_of[n.stage] == rank]
            before += self._reads.get(step, ())
        return next((needed for needed in before if needed not in self._done), None)

    def _ends(self, step: Step) -> bool:
        if not isinstance(step, Transfer) or (step.sends and self._mode == "buffered"):
            return True
        return self._partner[step] in self._posted

    def _why(self, rank: int, at: list[int]) -> tuple[Step, int, str]:
        group = self._group(self._steps[rank], at[rank])
        for step in group:
            lacking = self._lacks(rank, step)
            if isinstance(lacking, Transfer) and lacking in self._posted:
                return step, rank, self._stuck_line(rank, lacking)
            if lacking is not None:
                return step, rank, f"comes before {lacking}, which it needs"
        step = next(step for step in group if not self._ends(step))
        assert isinstance(step, Transfer)  # an action without missing steps ends
        other = self._rank(self._partner[step])
        head = self._steps[other][at[other]]
        return (
            step,
            rank,
            f"waits for {self._partner[step]}, but rank {other} is stuck before that, at {head}",
        )

    def _stuck_line(self, rank: int, wanted: Transfer) -> str:
        other = self._other(wanted, rank)
        mine, theirs = self._lines[rank, other], self._lines.get((other, rank), [])
        first = f"{theirs[0]} comes first" if theirs else "nothing is left"
        return f"waits for {wanted} behind {mine[0]} among the transfers with rank {other}, where {first}"

    def _pair(self) -> None:
        """Check that each transfer occurs once, on its stage's rank, in the same order on both sides of a
        pair.
        """
        if len(self._steps) != self._schedule.ranks:
            self._refuse("the list of steps", len(self._steps), "is missing or too many: each rank has one")
        seen = set[Transfer]()
        lines: dict[tuple[int, int], tuple[list[Transfer], list[Transfer]]] = {}
        for rank, steps in enumerate(self._steps):
            actions = [step for step in steps if isinstance(step, Action)]
            for ours, theirs in itertools.zip_longest(actions, self._schedule.orders[rank]):
                if ours != theirs:
                    there = f"is not the schedule's action there, {theirs or 'the end'}"
                    self._refuse(ours or theirs, rank, there)
            for step in steps:
                if isinstance(step, Transfer):
                    other = self._other(step, rank)
                    if step in seen:
                        self._refuse(step, rank, "occurs twice")
                    seen.add(step)
                    line = lines.setdefault((rank, other) if step.sends else (other, rank), ([], []))
                    line[0 if step.sends else 1].append(step)
        for missing in self._partner:
            if missing not in seen:
                self._refuse(missing, self._rank(missing), "is missing")
        for (sender, receiver), (sends, receives) in lines.items():
            for send, receive in zip(sends, receives, strict=True):
                if self._partner[send] != receive:
                    self._refuse(receive, receiver, f"is where rank {sender} sends {send}")

    def _other(self, step: Transfer, rank: int) -> int:
        if step not in self._partner:
            self._refuse(step, rank, "moves nothing that another rank needs")
        if self._rank(step) != rank:
            self._refuse(step, rank, f"belongs on rank {self._rank(step)}")
        return self._rank(self._partner[step])

    def _rank(self, step: Transfer) -> int:
        """Return the rank that runs a transfer."""
        if step.kind in ("ACCEPT", "RETURN"):
            return self._guest[step.stage, step.micro_batch]
        return self._rank_of[step.stage]

    def _refuse(self, step: Step | str, rank: int, problem: str) -> NoReturn:
        name = self._schedule.name
        raise BadTransfers(schedule=name, mode=self._mode, step=step, rank=rank, problem=problem)
