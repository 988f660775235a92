"""Benchmarks that choose the fastest of several implementations on this machine. Choices are cached.

Each implementation is a :class:`Candidate` that makes its own inputs: ATen's operator, a library call, or a
generated kernel.
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
"""Seconds for the measured calls of all candidates of a benchmark together."""
ROUNDS = (4, 20)
"""Minimum and maximum number of measured calls of each candidate."""
LONG_S = 0.2
"""Seconds beyond which half as many rounds are enough, since noise matters less for long calls."""
MARGIN = 0.98
"""Part of the first candidate's time below which another one is chosen. Smaller gains may be noise."""


@dataclass(frozen=True)
class Candidate:
    """Implementation to measure.

    ``build``: makes inputs and returns a function that computes once. ``version``: identity beyond the name,
    such as a generated kernel's hash. A choice among other versions is not reused.
    """

    name: str
    build: Callable[[], Callable[[], object]]
    version: str = ""


@dataclass(frozen=True)
class Choice:
    """Chosen candidate, and the seconds of each candidate that could be measured."""

    name: str
    seconds: dict[str, float]


def choose(subject: str, candidates: Sequence[Candidate]) -> str:
    """Return the name of the candidate that :func:`decide` finds."""
    return decide(subject, candidates).name


def decide(subject: str, candidates: Sequence[Candidate], clock: Clock | None = None) -> Choice:
    """Return the fastest candidate for ``subject``, with all times. ``clock``: default: the host's.

    The first candidate is the default: others must be faster by more than the noise. Candidates that cannot
    be built or called are ignored. Choices are cached on disk by ``subject``, candidates and the clock's
    surroundings. One process measures, and the others use its choice. Raises torch.OutOfMemoryError, which is
    not cached.
    """
    clock = clock or HostClock()
    key, file = _place(subject, candidates, clock)
    found = _find(file)
    if found is not None and found.name in [c.name for c in candidates]:
        return found
    with disk.alone(file):
        return _find(file) or _decided_now(file, key, subject, candidates, clock)


def is_decided(subject: str, candidates: Sequence[Candidate], clock: Clock) -> bool:
    """Return True if :func:`decide` would find a choice on disk."""
    return _find(_place(subject, candidates, clock)[1]) is not None


def _place(subject: str, candidates: Sequence[Candidate], clock: Clock) -> tuple[str, str]:
    """Return the text of all that a choice depends on, and the name of its cache file."""
    key = "\n".join([subject, *(f"{c.name} {c.version}" for c in candidates), clock.surroundings()])
    return key, f"choice-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _find(file: str) -> Choice | None:
    """Return a cached choice; None if there is none, or its file is damaged, which is then removed."""
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
    """Run the benchmark now, and cache its result in a sealed file."""
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
    """Return the seconds of each candidate's shortest call. Candidates are called alternately.

    Candidates that cannot be called are left out. Raises OutOfMemoryError.
    """
    clock = clock or HostClock()
    # A trace or compile around the measurement must not see it.
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
    """Build a candidate and call it once; return None if that fails."""
    try:
        call = candidate.build()
        call()
    except torch.OutOfMemoryError:  # others use the GPU's memory at the moment
        raise
    except Exception:  # a library may lack a dtype or a shape; the other candidates remain
        log.debug("%s cannot be measured", candidate.name, exc_info=True)
        return None
    return call
