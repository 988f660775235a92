"""Time of a collective by a named algorithm, or by the fastest that the links' library has."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.cost.cluster.mapping import Links
from shardc.cost.collectives.algorithms import ALGORITHMS, applies
from shardc.diagnostics.cluster import UnknownAlgorithm
from shardc.diagnostics.text import did_you_mean


@dataclass(frozen=True)
class Choice:
    """Algorithm, and the seconds that a collective takes with it."""

    algorithm: str
    seconds: float


def seconds(kind: str, links: Links, local_bytes: float, algorithm: str | None = None) -> float:
    """Return the seconds of a collective on ``local_bytes`` per member (see ``collective.sent_bytes``).

    ``kind``: all_reduce, all_gather, reduce_scatter, all_to_all, permute, exchange, broadcast. A group of one
    sends nothing and takes no time. Raises UnknownAlgorithm.
    """
    if links.ways == 1:
        return 0.0
    if algorithm is None:
        return best(kind, links, local_bytes).seconds
    known = _names(kind, links)
    if algorithm not in known:
        near = did_you_mean(algorithm, known)
        raise UnknownAlgorithm(kind=kind, name=algorithm, nearest=near, known=", ".join(known))
    return _seconds(algorithm, kind, links, local_bytes)


def best(kind: str, links: Links, local_bytes: float) -> Choice:
    """Return the fastest algorithm of the library. Raises UnknownAlgorithm if it has none."""
    if links.ways == 1:
        return Choice("none", 0.0)
    known = [name for name in _names(kind, links) if _has(links, name)]
    if not known:
        raise UnknownAlgorithm(kind=kind, name="", nearest="", known=", ".join(_names(kind, links)))
    choices = [Choice(name, _seconds(name, kind, links, local_bytes)) for name in known]
    return min(choices, key=lambda choice: choice.seconds)


def _has(links: Links, name: str) -> bool:
    """Return whether the library has an algorithm. One that names none has all of libraries, not our own."""
    return name in links.algorithms if links.algorithms else name != "direct"


def _names(kind: str, links: Links) -> list[str]:
    return [name for name in ALGORITHMS if applies(name, kind, links.spans)]


def _seconds(algorithm: str, kind: str, links: Links, local_bytes: float) -> float:
    return links.launch_s + ALGORITHMS[algorithm][0](kind, links.spans, local_bytes)
