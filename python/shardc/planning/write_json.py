"""Prices as JSON. ``schema`` is the version of the format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.passes.search.answer.answer import Answer
from shardc.planning.memory import RankMemory
from shardc.planning.modules import module_memory
from shardc.planning.price import Price
from shardc.planning.question import Question
from shardc.runtime.check import Json

SCHEMA = 1
MODULES = 20
"""Number of module classes in the JSON."""


def prices_json(question: Question, prices: Sequence[Price]) -> Json:
    """Return the model and all prices, the best first."""
    ordered = sorted(prices, key=lambda price: price.order)
    model = {"name": question.name, "parameters": question.parameters, "tokens": question.tokens}
    return {"schema": SCHEMA, "model": model, "plans": [_price(question, price) for price in ordered]}


def _price(question: Question, price: Price) -> Json:
    candidate, time = price.priced.candidate, price.time
    sent = [{"axes": list(axes), "bytes": size} for axes, size in price.priced.sent.items()]
    return {
        "plan": candidate.plan,
        "mesh": dict(candidate.mesh),
        "micro_batches": candidate.micro_batches,
        **candidate.schedule,
        **candidate.uneven,
        "cluster": price.cluster.name,
        "fits": price.fits,
        "capacity_bytes": price.capacity_bytes,
        "needed_bytes": price.needed_bytes,
        "memory": [_memory(rank, question) for rank in price.priced.memory],
        "step_s": time.seconds,
        "causes_s": dict(time.causes),
        "tokens_s": price.tokens_s if price.priced.tokens else None,
        "flop_utilization": price.flop_utilization,
        "energy_j": price.energy_j,
        "dollars": price.dollars,
        "sent": sent,
        "work_share": price.priced.work.share,
        "remarks": [remark.render() for remark in price.priced.remarks],
        "searched": _searched(price.priced.searched),
    }


def _searched(answer: Answer | None) -> Json | None:
    return None if answer is None else {**asdict(answer), "bound": answer.bound()}


def _memory(rank: RankMemory, question: Question) -> Json:
    peak = rank.peak
    return {
        "rank": rank.rank,
        "given_bytes": dict(rank.given),
        "made_bytes": rank.kinds,
        "peak_bytes": rank.peak_bytes,
        "reserved_bytes": rank.reserved_bytes,
        "host_bytes": rank.host_bytes,
        "where": None if isinstance(peak, PeakUnknown) else peak.where or None,
        "modules": [asdict(module) for module in module_memory(question.model, rank)[:MODULES]],
    }
