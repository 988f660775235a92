"""Detection of the rank that made a collective fail, by heartbeats in the process group's store.

A thread of each rank writes a counter twice a second. A rank whose collective fails, by a broken connection
or a time-out, looks at the others' counters. A rank with a constant counter died or hangs; a rank at an
earlier step is late. The first rank that finds the reason, or that failed itself, writes it to the store for
all. For a rank may notice a death only after other ranks stopped because of it.
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
"""Seconds after which a rank with a constant counter counts as gone: eight beats, for loaded machines."""
LINGER_S = 4 * BEAT_S
"""Seconds for which the store's process stays alive after a failure, so that others can read the reason."""
NOTHING = ""
"""Value of the reason while no rank has failed."""
NUMBERS = itertools.count()
"""Numbers of watches. Every rank makes its watches in the same order, so a number identifies one on all."""

LOOK = "look at the end of that rank's output; if it has none, at its machine's memory"


class Watch:
    """Heartbeat of one rank, and its view of the others'. It does nothing for a single rank."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        flights: Flights | None = None,
        timeout_s: float = math.inf,
        end: Callable[[RankStopped], None] | None = None,
    ) -> None:
        """Start the heartbeat.

        ``flights``: collectives of a GPU. If the GPU is stuck in one for ``timeout_s`` seconds, or another
        rank has failed meanwhile, ``end`` is called. By default it prints the reason and ends the process,
        since nothing else wakes a process that waits for its GPU.
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
            dist.barrier()  # all keys must exist before they are read: reading a missing key blocks
            self._thread = threading.Thread(target=self._run, daemon=True, name="shardc-watch")
            self._thread.start()
            atexit.register(self._stop)

    @contextmanager
    def guard(self, step: int) -> Iterator[None]:
        """Context of the work at ``step``. An error that another rank caused then names that rank."""
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
        """Return an error that names the rank that caused ``error``.

        If this rank itself failed, return None, and write the reason to the store. It takes up to PATIENCE_S
        seconds, and LINGER_S more on the rank that holds the store.
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
                return  # the store is gone: the program ends, or its next collective fails

    def _stop(self) -> None:
        """End the thread. A thread that uses the store while the interpreter ends aborts the process."""
        self._ends.set()
        self._thread.join(PATIENCE_S)

    def _is_stuck(self, flights: Flights) -> bool:
        """Return True if the GPU waits for a collective that will not end, after calling ``end``."""
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
        """Write the reason to the store, unless there is one already."""
        self._store.compare_set("reason", NOTHING, reason)

    def _linger(self) -> None:
        """Keep the store alive for the others, if it is in this process: on rank 0 without torchrun."""
        if self._rank == 0 and not AGENT_STORE.get():
            time.sleep(LINGER_S)

    def _left(self) -> str | None:
        return self._store.get("reason").decode() or None

    def _forget(self) -> None:
        """Remove the reason that this rank wrote, since the caller caught the error and continues.

        The key itself stays. Reading a missing key would block the store for all threads of this process.
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
    """Print the reason, and end the process, which may be waiting for its GPU."""
    print(f"{failure}", file=sys.stderr, flush=True)
    time.sleep(LINGER_S)  # for the others to read the reason
    os._exit(1)


def _verdict(silent: list[int], late: list[int], step: int, error: Exception) -> str:
    """Return text on what happened."""
    if silent:
        return f"{_ranks(silent)} died or hangs: no sign of life for {PATIENCE_S:g} s"
    if late:
        return f"{_ranks(late)} did not reach step {step} within the time-out (SHARDC_TIMEOUT_S sets it)"
    collective = getattr(error, "collective", "a collective")
    return f"{collective} failed: {_first_line(error)}"


def _is_communication(error: Exception) -> bool:
    """Return True if another rank may have caused an error; outside ``Pending.wait``, c10d's text decides."""
    signs = ("gloo", "onnection", "imed out", "imeout", "NCCL", "Broken pipe", "pair closure")
    known = isinstance(error, CommunicationError | dist.DistError)
    return known or (isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs))


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
