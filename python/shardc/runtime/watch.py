"""Finding out who is to blame when a collective fails: a sign of life of every rank, in the process group's store.

Each rank writes a counter every second from a thread of its own, and the reason if it fails. A rank whose collective
raised (the connection broke, or the time-out passed) looks at the others: one that left a reason has failed, one
whose counter stands still has died or hangs, one that is at an earlier step is late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from .errors import RankStopped, RuntimeFailure

BEAT_S = 0.5
PATIENCE_S = 4.0
"""A counter that stands still for so long belongs to a rank that is gone: eight beats, for loaded machines."""


class Watch:
    """The signs of life of one rank, and its view of the others'. Does nothing for a lone rank."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._world = rank, world_size
        self._step = 0
        self._beat = 0
        self._failed = False
        if world_size > 1:
            self._store: Any = dist.PrefixStore("shardc", _get_default_store())
            self._write()
            dist.barrier()  # so that no look finds a key missing, which would block
            threading.Thread(target=self._run, daemon=True, name="shardc-watch").start()

    @contextmanager
    def guard(self, step: int) -> Iterator[None]:
        """Around what all ranks do together at ``step``: an error that another rank caused names that rank instead."""
        self._step = step
        self._forget()
        try:
            yield
        except Exception as error:
            blamed = self.explain(error)
            if blamed is None:
                raise
            raise blamed from error

    def explain(self, error: Exception) -> RuntimeFailure | None:
        """Who made this rank's ``error`` happen; None if nobody else did: then the reason is left for the others.

        Takes up to PATIENCE_S seconds.
        """
        if self._world == 1:
            return None
        if not _is_communication(error):
            self._leave(f"rank {self._rank} failed: {_first_line(error)}")
            return None
        try:
            return self._blame(error)
        except (RuntimeError, dist.DistError) as lost:
            what = f"rank 0, or the launcher, which holds the store, is gone ({_first_line(lost)})"
            return RankStopped(what, hint="look at the first error in the output of the other ranks")

    def _run(self) -> None:
        while True:
            time.sleep(BEAT_S)
            try:
                self._write()
            except (RuntimeError, dist.DistError):
                return  # the store is gone: the program ends, or its next collective will say so

    def _write(self) -> None:
        self._beat += 1
        self._store.set(f"beat/{self._rank}", f"{self._beat} {self._step}")

    def _leave(self, reason: str) -> None:
        self._failed = True
        try:
            self._store.set(f"failed/{self._rank}", reason)
        except (RuntimeError, dist.DistError):
            return  # nobody is left to read it

    def _forget(self) -> None:
        """Take back a reason that was left: the caller caught the error and goes on."""
        if self._failed:
            self._store.delete_key(f"failed/{self._rank}")
            self._failed = False

    def _look(self, others: list[int]) -> dict[int, list[str]]:
        return {r: self._store.get(f"beat/{r}").decode().split() for r in others}

    def _blame(self, error: Exception) -> RankStopped:
        others = [r for r in range(self._world) if r != self._rank]
        first = self._look(others)
        silent, until = set(others), time.monotonic() + PATIENCE_S
        reasons: list[str] = []
        while silent and not reasons and time.monotonic() < until:
            time.sleep(BEAT_S)
            now = self._look(others)
            silent = {r for r in silent if now[r][0] == first[r][0]}
            reasons = [self._store.get(k).decode() for k in map("failed/{}".format, others) if self._store.check([k])]
        late = sorted(r for r in others if int(first[r][1]) < self._step)
        return RankStopped(*_verdict(self._rank, self._step, reasons, sorted(silent), late, error))


def _verdict(
    rank: int, step: int, reasons: list[str], silent: list[int], late: list[int], error: Exception
) -> tuple[str, str, str]:
    """What, where and hint of the message."""
    where = f"rank {rank}, step {step}"
    if reasons:
        return "; ".join(reasons), where, "mend what that rank reports; the other ranks only waited for it"
    if silent:
        return f"{_ranks(silent)} died or hangs: no sign of life for {PATIENCE_S:g} s", where, (
            "look at the end of that rank's output, and at its machine: out of memory is the usual cause"
        )
    if late:
        return f"{_ranks(late)} did not reach step {step} within the time-out", where, (
            "give every rank the same number of steps, or raise SHARDC_TIMEOUT_S"
        )
    return f"a collective failed: {_first_line(error)}", where, "look at the other ranks' output for the first error"


def _is_communication(error: Exception) -> bool:
    """Whether an exception may come from another rank. c10d raises plain RuntimeErrors for Gloo's broken connections."""
    text = str(error)
    signs = ("gloo", "Connection", "connection", "Timed out", "timed out", "NCCL", "Broken pipe", "recvBytes", "Socket")
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and any(s in text for s in signs))


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
