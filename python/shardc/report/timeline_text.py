"""Pipeline timeline as text: a row for each rank, a letter for each action."""

from __future__ import annotations

from shardc.cost.timeline import Span, Timeline

LEGEND = (
    "F forward, B backward, I input gradient, W weight gradient, each with its micro-batch; "
    "small letters: a rank's later stages"
)


def timeline_text(timeline: Timeline, width: int = 100) -> str:
    """Return a line for each rank.

    ``width``: maximum number of columns; fewer are used if the shortest action then gets a whole number of
    them. A short action shows only its letter. If actions share a column, the later one shows.
    """
    step_s = timeline.step_s or 1.0
    lengths_s = [s.end_s - s.start_s for spans in timeline.spans for s in spans if s.end_s > s.start_s]
    shortest_s = min(lengths_s, default=step_s)
    each = int(width * shortest_s / step_s)
    width = round(each * step_s / shortest_s) if each else width
    start_s = min((spans[0].start_s for spans in timeline.spans if spans), default=0.0)
    label = len(str(len(timeline.spans) - 1))
    rows = []
    for rank, spans in enumerate(timeline.spans):
        lowest = min((span.action.stage for span in spans), default=0)
        row = ["."] * width
        for span in spans:
            first = round((span.start_s - start_s) / step_s * width)
            last = max(first + 1, round((span.end_s - start_s) / step_s * width))
            row[first:last] = _cell(span, span.action.stage > lowest, min(last, width) - first)
        rows.append(f"rank {rank:>{label}} |{''.join(row)}|")
    return "\n".join(rows)


def _cell(span: Span, later: bool, length: int) -> str:
    letter = span.action.kind.lower() if later else span.action.kind
    text = f"{letter}{span.action.micro_batch}"
    return (text if len(text) <= length else letter).ljust(length, "-")[:length]
