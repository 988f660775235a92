"""Sensitivity of a search's answer to links, memory and batch size. Each change is searched again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.text import size_text, table
from shardc.passes.search.clock import INTERRUPTED
from shardc.planning.auto.fit import Picked
from shardc.planning.auto.searches import Searches
from shardc.planning.price import Price
from shardc.planning.verdict import time_text
from shardc.planning.what_if import WhatIf, read_what_if
from shardc.runtime.check import Json

CHANGES = ("links=0.5x", "links=2x", "memory=0.5x", "memory=2x", "batch=0.5x", "batch=2x")
"""Changes of a question, one at a time."""


@dataclass(frozen=True)
class Changed:
    """Answer after one change.

    ``kept``: the price of the former pick after a change of the cluster. ``problem``: why there is no answer;
    ``price`` is then None.
    """

    change: str
    price: Price | None = None
    kept: Price | None = None
    problem: str = ""


@dataclass(frozen=True)
class Sensitivity:
    """Answer without a change (``base``), and after each change."""

    base: Price
    rows: Sequence[Changed]


def sensitivity_of(
    searches: Searches, picked: Picked, searches_of: Callable[[WhatIf], Searches]
) -> Sensitivity:
    """Search again after each of :data:`CHANGES`.

    ``searches_of``: returns the searches for changed links or another batch. Searches with other memory
    reuse the results of ``searches``.
    """
    base, rows = picked.priced.on(searches.cluster), list[Changed]()
    is_interrupted = searches.is_interrupted
    for change in map(read_what_if, CHANGES):
        if is_interrupted:
            rows.append(Changed(change.text, problem=INTERRUPTED))
            continue
        try:
            used = searches if change.name == "memory" else searches_of(change)
            found = used.best(change.amount.number if change.name == "memory" else 1.0)
        except ShardcError as error:
            rows.append(Changed(change.text, problem=next(iter(str(error).splitlines()))))
            continue
        finally:
            is_interrupted = searches.is_interrupted
        is_interrupted |= used.is_interrupted
        cluster = change.cluster(searches.cluster) if change.is_of_cluster else searches.cluster
        kept = base.priced.on(cluster) if change.is_of_cluster else None
        rows.append(Changed(change.text, found.priced.on(cluster), kept))
    return Sensitivity(base, rows)


def sensitivity_text(found: Sensitivity) -> list[str]:
    """Return lines: a table with a row for each change, and which changes lead to another plan."""
    rows = [("change", "step", "plan as it is", "needs", "picked")]
    rows.append(("as it is", _step(found.base), "", size_text(found.base.needed_bytes), _text(found.base)))
    for row in found.rows:
        if row.price is None:
            rows.append((row.change, "", "", "", f"no answer: {row.problem}"))
            continue
        needs, pick = size_text(row.price.needed_bytes), _pick(row.price, found.base)
        rows.append((row.change, _step(row.price), _kept(row), needs, pick))
    base = _text(found.base)
    moved = [row.change for row in found.rows if row.price is not None and _text(row.price) != base]
    head = "what changes the answer, each searched again: "
    head += f"another plan is picked with {', '.join(moved)}" if moved else "no other plan is picked"
    return [head, *table(rows, right=(1, 2, 3))]


def sensitivity_json(found: Sensitivity) -> Json:
    """Return the same as JSON; seconds and bytes are None if there is no answer."""
    now = found.base
    base = {"picked": _text(now), "step_s": now.time.seconds, "needed_bytes": now.needed_bytes}
    return {"base": base, "changes": [_row(row, found.base) for row in found.rows]}


def _row(row: Changed, base: Price) -> Json:
    price, kept = row.price, row.kept
    return {
        "change": row.change,
        "picked": None if price is None else _text(price),
        "step_s": None if price is None else price.time.seconds,
        "needed_bytes": None if price is None else price.needed_bytes,
        "kept_step_s": kept.time.seconds if kept is not None and kept.fits else None,
        "kept_fits": None if kept is None else kept.fits,
        "is_same": None if price is None else _text(price) == _text(base),
        "problem": row.problem,
    }


def _text(price: Price) -> str:
    return replace(price.priced.candidate, room=1.0).text


def _pick(price: Price, base: Price) -> str:
    return "the same" if _text(price) == _text(base) else _text(price)


def _kept(row: Changed) -> str:
    if row.kept is None:
        return ""
    return _step(row.kept) if row.kept.fits else "does not fit"


def _step(price: Price) -> str:
    return time_text(price.time.seconds)
