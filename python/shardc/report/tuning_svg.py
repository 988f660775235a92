"""Standalone SVG picture of a tuning session: each kernel's best time so far, over its trials."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from shardc.report.timeline_svg import svg_head
from shardc.report.tuning_text import best_so_far, by_time
from shardc.tuner.session import SessionResult

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#eeca3b")
WIDTH, HEIGHT, LEFT, TOP, LINE = 640.0, 320.0, 60.0, 34.0, 16.0
"""Pixels: of the plot, left of and above it, of a line of the legend."""
SHOWN = 16
"""Number of kernels with a curve: those with most of the step's time."""


def tuning_svg(result: SessionResult) -> str:
    """Return the picture: time relative to the untuned kernel's, from 0 to 1, after each trial."""
    timed = by_time([t for t in result.tasks if t.default_s is not None])[:SHOWN]
    curves = [(t.job.task.label, best_so_far(t.trials)) for t in timed]
    longest = max((len(values) for _, values in curves), default=1)
    height = TOP + HEIGHT + 44 + LINE * len(curves)
    head = svg_head(
        LEFT + WIDTH + 20, height, "Time of each kernel over that untuned, best so far after each trial"
    )
    lines = [line for n, (label, values) in enumerate(curves) for line in _curve(n, label, values, longest)]
    white = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, white, *_axes(longest), *lines, "</svg>", ""])


def _axes(longest: int) -> Iterator[str]:
    yield f'<text x="{LEFT:g}" y="20" font-weight="bold">Time over that untuned, best so far</text>'
    for step in range(5):
        y = TOP + HEIGHT * step / 4
        yield f'<line x1="{LEFT:g}" y1="{y:g}" x2="{LEFT + WIDTH:g}" y2="{y:g}" stroke="#dddddd"/>'
        yield f'<text x="{LEFT - 8:g}" y="{y + 4:g}" text-anchor="end">{1 - step / 4:g}</text>'
    for step in range(5):
        place = f'x="{LEFT + WIDTH * step / 4:.1f}" y="{TOP + HEIGHT + 16:g}"'
        yield f'<text {place} text-anchor="middle">{longest * step / 4:g}</text>'
    place = f'x="{LEFT + WIDTH / 2:g}" y="{TOP + HEIGHT + 32:g}"'
    yield f'<text {place} text-anchor="middle">trials of the kernel</text>'


def _curve(number: int, label: str, values: Sequence[float], longest: int) -> Iterator[str]:
    """Yield a kernel's step curve, and its line of the legend."""
    colour = COLOURS[number % len(COLOURS)]
    dashes = ' stroke-dasharray="4 3"' if number >= len(COLOURS) else ""
    points, y = [f"{LEFT:g},{TOP:g}"], TOP
    for count, value in enumerate(values, 1):
        x = LEFT + WIDTH * count / longest
        points.append(f"{x:.1f},{y:.1f}")
        y = TOP + HEIGHT * (1 - value)
        points.append(f"{x:.1f},{y:.1f}")
    last = f"{values[-1]:.3f}" if values else "no trial"
    title = f"<title>{escape(label)}: {last}</title>"
    stroke = f'stroke="{colour}" stroke-width="1.5"{dashes}'
    yield f'<polyline points="{" ".join(points)}" fill="none" {stroke}>{title}</polyline>'
    line = TOP + HEIGHT + 44 + LINE * number
    ends = f'x1="{LEFT:g}" y1="{line:g}" x2="{LEFT + 20:g}" y2="{line:g}"'
    yield f'<line {ends} stroke="{colour}" stroke-width="3"{dashes}/>'
    yield f'<text x="{LEFT + 28:g}" y="{line + 4:g}">{escape(label)}: {last}</text>'
