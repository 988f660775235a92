"""Text of a plan's price: whether it fits, how fast it is, and what bounds it."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.diagnostics.text import size_text, table
from shardc.planning.best_first import Prices
from shardc.planning.modules import module_memory, module_rows
from shardc.planning.offload import OFFLOAD
from shardc.planning.price import Price
from shardc.planning.question import Question
from shardc.report.source_lines import remark_text

MODULES = 6
"""Number of module classes in the text."""
CAUSES = {
    "matmul": "matrix products",
    "memory": "passes over memory",
    "host": "launches",
    OFFLOAD: "copies of optimizer state",
}


def verdict(question: Question, price: Price) -> str:
    """Return the whole text on one plan."""
    parts = [
        _head(question, price),
        _memory(price),
        _modules(question, price),
        _time(price),
        price.priced.work.render(),
        price.priced.searched.render() if price.priced.searched is not None else [],
        _remarks(price),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def ranking(prices: Sequence[Price], most: int = 20, clusters: bool = False) -> list[str]:
    """Return the lines of a table of plans, the best first.

    Plans that fit come first, by the time of a step, then the others by the memory that they lack.
    ``clusters``: add a column for each plan's cluster.
    """
    ordered = sorted(prices, key=lambda price: price.order)
    fitting = sum(price.fits for price in prices)
    more = f", the first {most}" if len(ordered) > most else ""
    rows = [("plan", "mesh", *COLUMNS), *((*_place(price), *_figures(price)) for price in ordered[:most])]
    if clusters:
        names = ("cluster", *(price.cluster.name for price in ordered[:most]))
        rows = [(name, *row) for name, row in zip(names, rows, strict=True)]
    right = tuple(n + clusters for n in range(2, 7))
    return [f"{fitting} of {len(prices)} plans fit{more}:", *table(rows, right)]


def changes(price: Price, changed: Sequence[tuple[str, Price]]) -> list[str]:
    """Return the lines of a table: the unchanged price, and the price after each single change."""
    rows = [("what if", *COLUMNS), ("as it is", *_figures(price))]
    rows += [(text, *_figures(other)) for text, other in changed]
    return [f"{price.priced.candidate.text}, after one change:", *table(rows, right=(1, 2, 3, 4, 5))]


def fitting(changed: Price, change: str) -> str:
    """Return the line that recommends a change to a plan that does not fit."""
    needed, seconds = size_text(changed.needed_bytes), time_text(changed.time.seconds)
    return f"the smallest tried change that fits: {change} ({needed}, {seconds} a step)"


def lacking(price: Price) -> str:
    """Return the line for a plan that none of the tried changes makes fit."""
    needed = size_text(price.needed_bytes)
    return f"none of the tried changes fits: use more devices, or devices of {needed} for this plan"


def brief(price: Price) -> str:
    """Return a plan's text with its time or, if it does not fit, its memory."""
    number = time_text(price.time.seconds) if price.fits else size_text(price.needed_bytes)
    return f"{price.priced.candidate.text}, {number}"


def left_out(prices: Prices, capacity_bytes: float) -> list[str]:
    """Return lines on the plans that were not compiled.

    ``capacity_bytes``: memory of a device.
    """
    count = f"{len(prices.left_out)} more plans were not compiled"
    if prices.is_stopped:
        return [f"{count}: Ctrl-C; one of them may be better"]
    bounds = [bound for _, bound in prices.left_out]
    large = [bound.needed_bytes for bound in bounds if bound.needed_bytes > capacity_bytes]
    slow = [bound.seconds for bound in bounds if bound.needed_bytes <= capacity_bytes]
    lines = [f"{count}: {'no plan fits' if prices.is_hopeless else 'none of them can be the best'}"]
    if large:
        need = f"at least {size_text(min(large))} for parameters, state and what backward reads"
        lines.append(f"  {len(large)} need {need}")
    if slow:
        lines.append(f"  {len(slow)} take at least {time_text(min(slow))} a step")
    return lines


def too_much_state(least_bytes: float) -> str:
    """Return the line for a plan whose parameters and optimizer state alone do not fit."""
    alone = f"parameters and optimizer state alone need {size_text(least_bytes)} a device"
    return f"no smaller batch and no recomputation fits: {alone}"


def bound(price: Price) -> str:
    """Return the cause of the largest part of a step's time."""
    cause, seconds = max(price.time.causes.items(), key=lambda item: item[1])
    return f"{cause_text(cause)} ({seconds / price.time.seconds:.0%})"


def cause_text(cause: str) -> str:
    """Return the text of a cause: ``matrix products`` for ``matmul``; a mesh axis is returned unchanged."""
    return CAUSES.get(cause, cause)


def _head(question: Question, price: Price) -> list[str]:
    devices, cluster = price.priced.devices, price.cluster
    kinds = ", ".join(device.name for device in cluster.used(devices))
    tokens = f", {question.tokens:,} tokens a step" if question.tokens else ""
    return [
        f"{question.name}: {question.parameters / 1e9:.2f} B parameters{tokens}",
        f"plan {price.priced.candidate.text}",
        f"on {devices} of the {cluster.size} devices of {cluster.name} ({kinds})",
    ]


def _memory(price: Price) -> list[str]:
    fullest = price.fullest
    peak, capacity = size_text(fullest.peak_bytes), size_text(price.capacity_bytes)
    slack = (
        f", {size_text(price.needed_bytes)} with the allocator's slack of {price.slack:.1%}"
        if price.slack
        else ""
    )
    if price.host_lacking_bytes:
        lacking = size_text(price.host_lacking_bytes)
        head = f"does not fit: the host's memory lacks {lacking} a device for the optimizer's state"
    elif price.fits:
        head = f"fits: {peak} of {capacity} at the peak{slack}, {size_text(price.free_bytes)} free"
    else:
        lacking = size_text(-price.free_bytes)
        head = f"does not fit: {peak} at the peak{slack}, {capacity} on a device, {lacking} too much"
    if isinstance(fullest.peak, PeakUnknown):
        head += f"; activations are unknown ({fullest.peak.fields['problem']})"
    elif fullest.peak.where:
        head += f"; reached at {fullest.peak.where}"
    if len(price.priced.memory) > 1:
        head += f"; rank {fullest.rank} of a pipeline of {len(price.priced.memory)} is the fullest"
    return [head, *table(fullest.rows(), right=(1,))]


def _modules(question: Question, price: Price) -> list[str]:
    found = module_memory(question.model, price.fullest)
    texts = [
        (name, where, size_text(state), size_text(made))
        for name, where, state, made in module_rows(found, MODULES)
    ]
    head = ("module", "where", "state", "made by its code")
    return ["what modules hold at the peak", *table([head, *texts], right=(2, 3))]


def _time(price: Price) -> list[str]:
    time = price.time
    speed = f"; {price.tokens_s:,.0f} tokens/s, {price.tokens_s / price.priced.devices:,.0f} a device"
    spent = [
        f"{price.energy_j / 1e3:,.1f} kJ" if price.energy_j is not None else "",
        f"${price.dollars:,.4f}" if price.dollars is not None else "",
    ]
    head = f"a step takes {time_text(time.seconds)}{speed if price.priced.tokens else ''}"
    head += f"; MFU {price.flop_utilization:.1%}" + "".join(f"; {text}" for text in spent if text)
    rows = [
        (cause_text(cause), time_text(seconds), f"{seconds / time.seconds:.1%}")
        for cause, seconds in sorted(time.causes.items(), key=lambda item: -item[1])
        if seconds
    ]
    rows += [(name, time_text(took), f"{took / time.seconds:.1%}") for name, took in time.places.items()]
    return [head, *table(rows, right=(1, 2))]


def _remarks(price: Price) -> list[str]:
    remarks = [*price.priced.remarks, *price.priced.work.remarks()]
    return ["remarks", *(f"  {remark_text(remark)}" for remark in remarks)] if remarks else []


COLUMNS = ("step", "tokens/s", "MFU", "peak", "free", "bound by")


def _place(price: Price) -> tuple[str, str]:
    candidate = price.priced.candidate
    mesh = " x ".join(f"{name} {size}" for name, size in candidate.mesh.items())
    parts = f", {candidate.micro_batches} micro-batches" if candidate.micro_batches > 1 else ""
    order = f", {candidate.form}" if candidate.schedule else ""
    return candidate.plan, mesh + parts + order + candidate.uneven_text


def _figures(price: Price) -> tuple[str, ...]:
    free_bytes = min(price.free_bytes, -price.host_lacking_bytes or price.free_bytes)
    free = size_text(free_bytes) if price.fits else f"-{size_text(-free_bytes)}"
    return (
        time_text(price.time.seconds),
        f"{price.tokens_s:,.0f}" if price.priced.tokens else "-",
        f"{price.flop_utilization:.1%}",
        size_text(price.fullest.peak_bytes),
        free,
        bound(price),
    )


def time_text(seconds: float) -> str:
    """Format seconds, as ``812.0 ms`` or ``3.52 s``."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
