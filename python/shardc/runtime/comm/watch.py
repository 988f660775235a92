"""Finds out which rank made a collective fail, by signs of life of all ranks in the process group's store.

Each rank writes a counter twice a second from a thread of its own. A rank whose collective raised (the
connection broke, or the time-out passed) looks at the others: one whose counter stands still has died or
hangs, one that is at an earlier step is late. Whoever finds the reason first, or has failed by itself, leaves
it in the store for all: a rank may hear of a death only when the ranks that it waits for have stopped because
of it.
"""

import atexit
import itertools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.distributed as dist

from ..environment import AGENT_STORE
from ..errors import CommunicationError, RankStopped, RuntimeFailure
from ..torch_private import default_store
from .flights import Flights

BEAT_S = 0.5
PATIENCE_S = 4.0
"""A counter that stands still for so long is a rank's that is gone: eight beats, for loaded machines."""
LINGER_S = 4 * BEAT_S
"""How long the process that holds the store stays after a failure, for the others to read the reason."""
NOTHING = ""
"""The reason while nobody has failed."""
NUMBERS = itertools.count()
"""Every rank makes its watches in the same order, so a number names one watch on all of them."""

LOOK = "look at the end of that rank's output; if it has none, at its machine's memory"


class Watch:
    """The signs of life of one rank, and its view of the others'. Does nothing for a lone rank."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        flights: Flights | None = None,
        timeout_s: float = math.inf,
        end: Callable[[RankStopped], None] | None = None,
    ) -> None:
        """``flights`` are the collectives of a GPU: where it is stuck in one for ``timeout_s`` seconds, or
        another rank has failed meanwhile, ``end`` is called (it prints why, and ends the process: nothing
        else wakes one that waits for its GPU).
        """
        self._rank, self._world = rank, world_size
        self._flights, self._timeout_s, self._end = flights, timeout_s, end or _end
        self._step = 0
        self._beat = 0
        self._mine = NOTHING
        self._reason: str | None = None
        self._waits_in: str | None = None
        self._ends = threading.Event()
        if world_size > 1:
            name = f"shardc/{next(NUMBERS)}"
            self._store = dist.PrefixStore(name, default_store())  # pyright: ignore[reportPrivateImportUsage]
            self._store.set("reason", NOTHING)
            self._write()
            dist.barrier()  # so that no look finds a key missing, which would block
            self._thread = threading.Thread(target=self._run, daemon=True, name="shardc-watch")
            self._thread.start()
            atexit.register(self._stop)

    @contextmanager
    def guard(self, step: int) -> Iterator[None]:
        """Around what all ranks do at ``step``: an error that another rank caused names that rank."""
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
        """Return who made this rank's ``error`` happen; None, and leave the reason, if nobody else did.

        Takes up to PATIENCE_S seconds, and LINGER_S more on the rank that holds the store.
        """
        if self._world == 1:
            return None
        try:
            self._waits_in = getattr(error, "collective", None)
            blamed = self._blame(error) if _is_communication(error) else None
            if blamed is None:
                self._mine = f"rank {self._rank} failed: {_first_line(error)}"
                self._leave(self._mine)
            self._linger()
            return blamed
        except (RuntimeError, dist.DistError) as lost:
            what = self._reason or f"rank 0, which holds the store, is gone ({_first_line(lost)})"
            return RankStopped(what, self._where, "look at the first error in the output of the other ranks")

    @property
    def _where(self) -> str:
        return f"rank {self._rank}, step {self._step}" + (f", in {self._waits_in}" if self._waits_in else "")

    def _run(self) -> None:
        while not self._ends.wait(BEAT_S):
            try:
                self._write()
                self._reason = self._left()
                if self._flights is not None and self._is_stuck(self._flights):
                    return
            except (RuntimeError, dist.DistError):
                return  # the store is gone: the program ends, or its next collective will say so

    def _stop(self) -> None:
        """End the thread: one that is within the store when the interpreter ends aborts the process."""
        self._ends.set()
        self._thread.join(PATIENCE_S)

    def _is_stuck(self, flights: Flights) -> bool:
        """Whether the GPU waits for a collective that will not end; the process then ends, saying why."""
        stuck = flights.stuck()
        if stuck is None or stuck[1] < min(PATIENCE_S, self._timeout_s):
            return False
        self._waits_in, waited_s = stuck
        if self._reason is None and waited_s < self._timeout_s:
            return False
        if self._reason is None:
            late = CommunicationError(f"it did not end within {self._timeout_s:g} s", self._waits_in)
            self._reason = self._blame(late).what
        self._end(RankStopped(self._reason, self._where, LOOK))
        return True

    def _write(self) -> None:
        self._beat += 1
        self._store.set(f"beat/{self._rank}", f"{self._beat} {self._step}")

    def _leave(self, reason: str) -> None:
        """Put the reason where the others look, unless one is there already."""
        self._store.compare_set("reason", NOTHING, reason)

    def _linger(self) -> None:
        """Keep the store for the others. torchrun holds it itself; without it, rank 0 does."""
        if self._rank == 0 and not AGENT_STORE.get():
            time.sleep(LINGER_S)

    def _left(self) -> str | None:
        return self._store.get("reason").decode() or None

    def _forget(self) -> None:
        """Take back the reason that this rank left, and no other: the caller caught the error and goes on.

        The key stays: a look at one that is missing would block this process's store, for all of its threads.
        """
        if self._mine:
            self._store.compare_set("reason", self._mine, NOTHING)
            self._mine, self._reason = NOTHING, None

    def _look(self) -> dict[int, list[bytes]]:
        return {r: self._store.get(f"beat/{r}").split() for r in range(self._world) if r != self._rank}

    def _blame(self, error: Exception) -> RankStopped:
        first = self._look()
        silent, until = set(first), time.monotonic() + PATIENCE_S
        reason = self._left()
        while silent and reason is None and time.monotonic() < until:
            time.sleep(BEAT_S)
            now = self._look()
            silent = {r for r in silent if now[r][0] == first[r][0]}
            reason = self._left()
        if reason is None:
            late = sorted(r for r, (_, step) in first.items() if int(step) < self._step)
            reason = _verdict(sorted(silent), late, self._step, error)
            self._leave(reason)
        return RankStopped(reason, self._where, LOOK)


def _end(failure: RankStopped) -> None:
    """Say why, and end the process, which may be waiting for its GPU."""
    print(f"{failure}", file=sys.stderr, flush=True)
    time.sleep(LINGER_S)  # for the others to read the reason
    os._exit(1)


def _verdict(silent: list[int], late: list[int], step: int, error: Exception) -> str:
    """What the message says happened."""
    if silent:
        return f"{_ranks(silent)} died or hangs: no sign of life for {PATIENCE_S:g} s"
    if late:
        return f"{_ranks(late)} did not reach step {step} within the time-out (SHARDC_TIMEOUT_S sets it)"
    collective = getattr(error, "collective", "a collective")
    return f"{collective} failed: {_first_line(error)}"


def _is_communication(error: Exception) -> bool:
    """Whether another rank may have caused an error: outside of ``Pending.wait``, c10d's text has to tell."""
    signs = ("gloo", "onnection", "imed out", "imeout", "NCCL", "Broken pipe", "pair closure")
    known = isinstance(error, CommunicationError | dist.DistError)
    return known or (isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs))


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
