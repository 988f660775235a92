"""Waits for another process that makes the same file, and logs a long wait."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from typing import IO

from shardc.environment import RANK

log = logging.getLogger(__name__)

PATIENCE_S = 2.0
"""Wait in seconds after which a process logs whom it waits for."""
_LOOK_S = 0.02


def wait_for(lock: IO[str], name: str) -> None:
    """Take the lock of an open file, in which the holder writes its rank and process id.

    Linux releases the lock when its process ends. Raises OSError.
    """
    started, is_said = time.monotonic(), False
    while not _taken(lock):
        if not is_said and time.monotonic() - started > PATIENCE_S:
            is_said = True
            log.warning("rank %s waits for %s, which makes %s", RANK.get(), _holder(lock), name)
        time.sleep(_LOOK_S)
    lock.truncate(0)
    lock.write(f"rank {RANK.get()}, process {os.getpid()}")
    lock.flush()


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(lock: IO[str]) -> str:
    """Return the description that the holder wrote."""
    lock.seek(0)
    return lock.read() or "another process"
