"""Cache on disk of the outer search's answers, so that a second search of the same question returns at once.

The key contains the captured step with few of its equal layers, the number of layers, the cluster, and all
other inputs of the search. One process of a machine searches while the others wait, so all run the same plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from shardc.cache import disk
from shardc.cache.versions import code_versions
from shardc.cost.schedule_form import ScheduleForm
from shardc.dialects.rules.rule import added
from shardc.environment import PLAN_CACHE
from shardc.planning.auto.choose import Around, Estimate, Floor
from shardc.planning.auto.fit import Picked
from shardc.planning.auto.space import Choice
from shardc.planning.candidates import Candidate
from shardc.planning.price import Priced
from shardc.runtime.report.logs import CACHE

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """Answer of a search: the plan that it picked, and the choices that it tried (``around``).

    ``verdict``: the plan's cost, as text. ``seconds``: time of a step. ``peak_bytes``: memory of the fullest
    device. ``priced``: the compiled plan; None if the answer comes from the cache.
    """

    candidate: Candidate
    around: Around
    verdict: str
    seconds: float
    peak_bytes: int
    priced: Priced | None = None


def answered(question: object, search: Callable[[], Answer]) -> Answer:
    """Return the answer of ``search``, or the cached one for the same ``question`` (compared by ``repr``).

    Answers of searches that a time limit or Ctrl-C ended are not cached.
    """
    name = name_of(question)
    if name is None:
        return search()
    if (found := load(name, _unpacked)) is not None:
        return found
    with disk.alone(name):
        # Another process may have searched in the meantime.
        found = load(name, _unpacked)
        if found is None:
            found = search()
            if not found.around.is_stopped:
                disk.keep(name, json.dumps(_packed(found)).encode())
    return found


def name_of(question: object) -> str | None:
    """Return the name of the cache's entry for a question, compared by ``repr``; None if it is not cached."""
    if not PLAN_CACHE.get() or added:  # a key cannot cover the code of a user's rules
        return None
    digest = hashlib.sha256(repr((question, code_versions())).encode()).hexdigest()
    return f"plan-{digest[:32]}.json"


def asked(answer: Picked, verdict: str, seconds: float) -> Answer:
    """Return the answer for a plan that was just searched."""
    priced = answer.priced
    return Answer(priced.candidate, answer.around, verdict, seconds, priced.fullest.peak_bytes, priced)


def load(name: str, read: Callable[[Any], T]) -> T | None:
    """Load the cached entry of that name, which ``read`` makes of its JSON; None if missing or unusable."""
    entry = disk.read(name)
    if entry is None:
        return None
    try:
        return read(json.loads(entry[1]))
    except (ValueError, KeyError, TypeError) as error:
        CACHE.debug("the entry %s is of no use: %s", name, error)
        disk.discard(name)
        return None


def _packed(answer: Answer) -> dict[str, object]:
    around = replace(answer.around, left=())
    return {
        "candidate": candidate_json(answer.candidate),
        "around": {**asdict(around), "found": [asdict(estimate) for estimate in around.found]},
        "verdict": answer.verdict,
        "seconds": answer.seconds,
        "peak_bytes": answer.peak_bytes,
    }


def _unpacked(held: Mapping[str, Any]) -> Answer:
    """Read an answer from JSON. Raises ValueError, KeyError, TypeError."""
    candidate = candidate_of(held["candidate"])
    found = [Estimate(**{**row, "choice": _choice(row["choice"])}) for row in held["around"]["found"]]
    around = Around(**{**held["around"], "found": found, "floor": Floor(**held["around"]["floor"])})
    return Answer(candidate, around, held["verdict"], held["seconds"], held["peak_bytes"])


def candidate_json(candidate: Candidate) -> dict[str, object]:
    """Return a candidate as JSON that keeps the order of its axes."""
    return {**asdict(candidate), "mesh": [*candidate.mesh.items()]}


def candidate_of(held: Mapping[str, Any]) -> Candidate:
    """Read a candidate from JSON. Raises ValueError, KeyError, TypeError."""
    shares = {axis: tuple(of) for axis, of in held["shares"].items()}
    more = {"shares": shares, "speeds": tuple(held["speeds"]), "form": ScheduleForm(**held["form"])}
    return Candidate(**{**held, "mesh": dict(held["mesh"]), **more})


def _choice(row: Mapping[str, Any]) -> Choice:
    axes = tuple((str(name), int(size)) for name, size in row["axes"])
    uneven = {name: tuple(row[name]) for name in ("shares", "speeds")}
    return Choice(**{**row, "axes": axes, "form": ScheduleForm(**row["form"]), **uneven})
