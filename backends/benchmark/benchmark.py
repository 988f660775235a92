"""The fastest of several ways to compute the same here: each is built and timed, the winner remembered.

A way is a :class:`Candidate` that makes its own inputs: ATen's operator, a library's, or a generated kernel.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from shardc.backends.benchmark.clocks import Clock, HostClock
from shardc.cache import disk
from shardc.runtime.report import progress
from shardc.runtime.torch_private import disable_current_modes, without_autocast

log = logging.getLogger(__name__)

BUDGET_S = 0.02
"""How long the calls that count may take, all candidates of one benchmark together."""
ROUNDS = (4, 20)
"""The fewest and the most calls of each candidate that count."""
LONG_S = 0.2
"""How long they may take before half as many rounds are enough: what takes so long is little disturbed."""
MARGIN = 0.98
"""Part of the first candidate's time that another must stay under to be chosen: less is within the noise."""


@dataclass(frozen=True)
class Candidate:
    """One way. ``build`` makes its inputs and returns a function that computes it once. ``version``: what it
    is besides its name (a generated kernel's hash); choices made among other versions do not count.
    """

    name: str
    build: Callable[[], Callable[[], object]]
    version: str = ""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the seconds that each candidate took which could be measured."""

    name: str
    seconds: dict[str, float]


def choose(subject: str, candidates: Sequence[Candidate]) -> str:
    """The name of what :func:`decide` finds."""
    return decide(subject, candidates).name


def decide(subject: str, candidates: Sequence[Candidate], clock: Clock | None = None) -> Choice:
    """The fastest candidate for ``subject`` by ``clock`` (the host's), with all their times.

    The first candidate is kept when in doubt: others must be faster by more than the noise, and one that
    cannot be built or called here is out. Choices are remembered on disk by ``subject``, candidates and the
    clock's surroundings; one process measures, the others choose as it did. Raises torch.OutOfMemoryError,
    which is not remembered.
    """
    clock = clock or HostClock()
    key, file = _place(subject, candidates, clock)
    found = _find(file)
    if found is not None and found.name in [c.name for c in candidates]:
        return found
    with disk.alone(file):
        return _find(file) or _decided_now(file, key, subject, candidates, clock)


def is_decided(subject: str, candidates: Sequence[Candidate], clock: Clock) -> bool:
    """Whether :func:`decide` would find a choice on disk."""
    return _find(_place(subject, candidates, clock)[1]) is not None


def _place(subject: str, candidates: Sequence[Candidate], clock: Clock) -> tuple[str, str]:
    """All that a choice depends on, and the name of the file that keeps it."""
    key = "\n".join([subject, *(f"{c.name} {c.version}" for c in candidates), clock.surroundings()])
    return key, f"choice-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _find(file: str) -> Choice | None:
    """What was chosen; None if nothing is known, or the file was damaged, which is then removed."""
    found = disk.read(file)
    if found is None:
        return None
    try:
        kept = json.loads(found[1])
        choice, seconds = kept["choice"], {str(name): float(s) for name, s in kept.get("seconds", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.debug("the entry %s does not parse: %s", file, error)
        disk.discard(file)
        return None
    return Choice(choice, seconds)


def _decided_now(file: str, key: str, subject: str, candidates: Sequence[Candidate], clock: Clock) -> Choice:
    """The winner of a benchmark that is run now, remembered in a sealed file, or else for this process."""
    seconds = measure(candidates, clock)
    found = Choice(_winner(candidates[0].name, seconds), seconds)
    log.debug("%s: %s of %s", subject, found.name, {name: f"{1e6 * s:.0f} us" for name, s in seconds.items()})
    disk.keep(file, json.dumps({"key": key, "choice": found.name, "seconds": seconds}).encode())
    return found


def _winner(first: str, seconds: dict[str, float]) -> str:
    if not seconds:
        return first
    best = min(seconds, key=seconds.__getitem__)
    return best if first not in seconds or seconds[best] < MARGIN * seconds[first] else first


def measure(candidates: Sequence[Candidate], clock: Clock | None = None) -> dict[str, float]:
    """Seconds of each candidate's shortest call, in turns, if it can be called. Raises OutOfMemoryError."""
    clock = clock or HostClock()
    # Measuring is no part of whatever is being traced or compiled around it.
    with disable_current_modes(), torch.no_grad(), without_autocast():
        calls = {c.name: call for c in candidates if (call := _built(c)) is not None}
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        spent, least, most = 0.0, *ROUNDS
        for number in range(most if calls else 0):
            if (number >= least and spent >= BUDGET_S) or (2 * number >= least and spent >= LONG_S):
                break
            progress.step("benchmark, round", number + 1, most)
            for name, call in calls.items():
                seconds[name].append(clock.seconds(call))
                spent += seconds[name][-1]
    return {name: min(times) for name, times in seconds.items()}


def _built(candidate: Candidate) -> Callable[[], object] | None:
    """A candidate, built and called once; None if it cannot be."""
    try:
        call = candidate.build()
        call()
    except torch.OutOfMemoryError:  # a GPU's memory is taken by others, for now
        raise
    except Exception:  # a library may lack a dtype or a shape; the other candidates remain
        log.debug("%s cannot be measured", candidate.name, exc_info=True)
        return None
    return call
