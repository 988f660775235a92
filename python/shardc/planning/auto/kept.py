"""What a search around the cuts found, kept on disk: a second search of the same question answers at once.

The key is the captured step with few of its equal layers, how many there are, the cluster, and what else
decides. Of the processes of a machine one searches, and the others wait for it: so all run the same plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shardc.cache import disk
from shardc.cache.versions import code_versions
from shardc.dialects.rules.rule import added
from shardc.environment import PLAN_CACHE
from shardc.planning.auto.choose import Around, Estimate
from shardc.planning.auto.fit import Picked
from shardc.planning.auto.space import Choice
from shardc.planning.candidates import Candidate
from shardc.planning.price import Priced
from shardc.runtime.report.logs import CACHE


@dataclass(frozen=True)
class Answer:
    """What a search picked, and what it looked at. ``verdict``: what the pick costs, in words; ``seconds`` a
    step and ``peak_bytes`` of the fullest device. ``priced``: the pick compiled, if it was searched now.
    """

    candidate: Candidate
    around: Around
    verdict: str
    seconds: float
    peak_bytes: int
    priced: Priced | None = None


def answered(question: object, search: Callable[[], Answer]) -> Answer:
    """What ``search`` finds, or found before for the same ``question``, whose text tells it from others.

    What is found until a time limit or Ctrl-C is not kept.
    """
    if not PLAN_CACHE.get() or added:  # no key sees into a user's rules
        return search()
    digest = hashlib.sha256(repr((question, code_versions())).encode()).hexdigest()
    name = f"plan-{digest[:32]}.json"
    if (found := _load(name)) is not None:
        return found
    with disk.alone(name):
        # another process may have searched since
        found = _load(name)
        if found is None:
            found = search()
            if not found.around.is_stopped:
                disk.keep(name, json.dumps(_packed(found)).encode())
    return found


def asked(answer: Picked, verdict: str, seconds: float) -> Answer:
    """The answer of a search."""
    priced = answer.priced
    return Answer(priced.candidate, answer.around, verdict, seconds, priced.fullest.peak_bytes, priced)


def _load(name: str) -> Answer | None:
    """What is kept under a name; None if it is not there or of no use."""
    entry = disk.read(name)
    if entry is None:
        return None
    try:
        return _unpacked(json.loads(entry[1]))
    except (ValueError, KeyError, TypeError) as error:
        CACHE.debug("the entry %s is of no use: %s", name, error)
        disk.discard(name)
        return None


def _packed(answer: Answer) -> dict[str, object]:
    around = answer.around
    return {
        "candidate": {**asdict(answer.candidate), "mesh": [*answer.candidate.mesh.items()]},
        "around": {**asdict(around), "found": [asdict(estimate) for estimate in around.found]},
        "verdict": answer.verdict,
        "seconds": answer.seconds,
        "peak_bytes": answer.peak_bytes,
    }


def _unpacked(held: Mapping[str, Any]) -> Answer:
    """Raises ValueError, KeyError, TypeError."""
    candidate = Candidate(**{**held["candidate"], "mesh": dict(held["candidate"]["mesh"])})
    found = [Estimate(**{**row, "choice": _choice(row["choice"])}) for row in held["around"]["found"]]
    around = Around(**{**held["around"], "found": found})
    return Answer(candidate, around, held["verdict"], held["seconds"], held["peak_bytes"])


def _choice(row: Mapping[str, Any]) -> Choice:
    return Choice(**{**row, "axes": tuple((str(name), int(size)) for name, size in row["axes"])})
