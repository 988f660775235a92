"""Pipeline timelines as a standalone SVG picture or HTML page.

Simulated and measured runs are drawn above each other, with one time scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from shardc.cost.pipeline import StageCost
from shardc.cost.timeline import Span, Timeline
from shardc.dialects.pipe.action import KINDS

COLOURS = {"F": "#4c78a8", "B": "#54a24b", "I": "#72b7b2", "W": "#f2b134"}
WIDTH, ROW, MEMORY, LEFT, GAP = 1200.0, 22.0, 16.0, 70.0, 34.0
"""Pixels: of the longest step, a rank's row, the memory curve under it, left of both, above each run."""


@dataclass(frozen=True)
class Run:
    """Timeline with its title. With ``costs`` of the stages, curves show the bytes of activations."""

    title: str
    timeline: Timeline
    costs: Sequence[StageCost] | None = None


def timeline_svg(runs: Sequence[Run], width: float = WIDTH) -> str:
    """Return the picture, in which the longest step is ``width`` pixels long.

    An action's tooltip has its times in seconds.
    """
    longest_s = max(run.timeline.step_s for run in runs) or 1.0
    body, y = [], 0.0
    for run in runs:
        body += _run(run, y, width / longest_s)
        y += GAP + len(run.timeline.spans) * _row_height(run)
    label = "Timeline of a pipeline's ranks: " + " and ".join(run.title for run in runs)
    head = svg_head(LEFT + width + 10, y + ROW + 8, label)
    white = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, white, *body, *_legend(y + 8), "</svg>", ""])


def svg_head(width: float, height: float, label: str) -> str:
    """The opening tag of a picture of ``width`` x ``height`` pixels; ``label`` is its alternative text."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    named = f'role="img" aria-label="{escape(label)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {named} font-family="sans-serif" font-size="11">'


def timeline_html(runs: Sequence[Run], text: str = "") -> str:
    """Return a page with the picture and ``text`` below it. It loads nothing else."""
    title = escape(" and ".join(run.title for run in runs))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
        f"<body>\n{timeline_svg(runs)}<pre>{escape(text)}</pre>\n</body></html>\n"
    )


def _row_height(run: Run) -> float:
    return ROW + (MEMORY if run.costs is not None else 4.0)


def _run(run: Run, top: float, per_second: float) -> Iterator[str]:
    timeline = run.timeline
    rate = f"bubble rate {timeline.bubble_rate:.4f}, step {timeline.step_s:g} s"
    yield f'<text x="4" y="{top + 22:g}" font-weight="bold">{escape(run.title)}: {rate}</text>'
    start_s = min((spans[0].start_s for spans in timeline.spans if spans), default=0.0)
    curves = timeline.memory(run.costs) if run.costs is not None else []
    most = max((held for curve in curves for _, held in curve), default=0.0) or 1.0
    for rank, spans in enumerate(timeline.spans):
        y = top + GAP + rank * _row_height(run)
        lowest = min((span.action.stage for span in spans), default=0)
        length = f'width="{timeline.step_s * per_second:.2f}" height="{ROW - 2:g}"'
        yield f'<text x="4" y="{y + ROW - 7:g}">rank {rank}</text>'
        yield f'<rect x="{LEFT:g}" y="{y:g}" {length} fill="#eeeeee"/>'
        for span in spans:
            yield from _action(span, start_s, y, per_second, span.action.stage > lowest)
        if curves:
            yield _curve(curves[rank], most, start_s, y + ROW + MEMORY - 4, per_second)


def _action(span: Span, start_s: float, y: float, per_second: float, later: bool) -> Iterator[str]:
    """Yield an action's box, paler for a rank's later stages, with the micro-batch's number if it fits."""
    x, width = LEFT + (span.start_s - start_s) * per_second, (span.end_s - span.start_s) * per_second
    kind, label = span.action.kind, str(span.action.micro_batch)
    text = f"{span.action} ({KINDS[kind]}), {span.start_s:g} to {span.end_s:g} s"
    box = f'x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{ROW - 2:g}"'
    shade = ' fill-opacity="0.6"' if later else ""
    fill = f'fill="{COLOURS[kind]}"{shade} stroke="white" stroke-width="0.5"'
    yield f"<rect {box} {fill}><title>{text}</title></rect>"
    if width > 7 * len(label):
        place = f'x="{x + width / 2:.2f}" y="{y + ROW - 8:g}"'
        yield f'<text {place} text-anchor="middle" pointer-events="none">{label}</text>'


def _curve(
    curve: Sequence[tuple[float, float]], most: float, start_s: float, base: float, per_second: float
) -> str:
    """Return a step curve of bytes over time. The largest peak of all ranks fills the height."""
    points, height = [f"{LEFT:g},{base:g}"], base
    for when_s, held in curve:
        x = LEFT + (when_s - start_s) * per_second
        points.append(f"{x:.2f},{height:.2f}")
        height = base - (MEMORY - 4) * held / most
        points.append(f"{x:.2f},{height:.2f}")
    peak = max((held for _, held in curve), default=0.0)
    title = f"<title>activations, at most {peak:g} bytes</title>"
    return f'<polyline points="{" ".join(points)}" fill="none" stroke="#b04a5a">{title}</polyline>'


def _legend(y: float) -> Iterator[str]:
    for number, (kind, colour) in enumerate(COLOURS.items()):
        x = LEFT + 150 * number
        yield f'<rect x="{x:g}" y="{y:g}" width="14" height="14" fill="{colour}"/>'
        yield f'<text x="{x + 20:g}" y="{y + 11:g}">{kind}: {KINDS[kind]}</text>'
