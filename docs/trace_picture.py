"""Picture of a trace for the gallery: tracks of a Chrome trace as SVG, in Perfetto's layout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

COLOURS = {"matmul": "#4c78a8", "attention": "#54a24b", "memory": "#f2b134", "collective": "#b04a5a"}
OTHER, WIDTH, ROW, CURVE, LEFT = "#72b7b2", 580.0, 20.0, 60.0, 150.0
"""Colour of other items; pixels: of the time shown, of a track, of a curve, left of both."""

Event = dict[str, Any]


def trace_svg(path: Path) -> str:
    """Return the tracks and the memory curve of the first process of a JSON trace that ``--trace`` wrote."""
    events = json.loads(path.read_text())["traceEvents"]
    process = next(event for event in events if event["name"] == "process_name")
    own = [event for event in events if event["pid"] == process["pid"]]
    names = {event["tid"]: event["args"]["name"] for event in own if event["name"] == "thread_name"}
    items = [event for event in own if event["ph"] == "X"]
    curve = [event for event in own if event["ph"] == "C"]
    end = max(event["ts"] + event["dur"] for event in items)
    scale, title = WIDTH / end, f"{process['args']['name']}: {end / 1e3:.1f} ms"
    marks, y = [f'<text x="4" y="18" font-weight="bold">{escape(title)}</text>'], 30.0
    for track, name in names.items():
        marks.append(f'<text x="4" y="{y + 14:g}">{escape(name)}</text>')
        marks.append(f'<rect x="{LEFT:g}" y="{y:g}" width="{WIDTH:g}" height="{ROW - 2:g}" fill="#eeeeee"/>')
        marks += [_item(event, y, scale) for event in items if event["tid"] == track]
        y += ROW + 4
    if curve:
        marks += _curve(curve, y, scale)
        y += CURVE + 8
    size = f'viewBox="0 0 {LEFT + WIDTH + 10:g} {y + 30:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}"'
    white = '<rect width="100%" height="100%" fill="white"/>'
    font = 'font-family="sans-serif" font-size="11"'
    return "\n".join([f"{head} {font}>", white, *marks, *_legend(y), "</svg>"])


def _item(event: Event, y: float, scale: float) -> str:
    box = f'x="{LEFT + event["ts"] * scale:.2f}" y="{y:g}" width="{max(event["dur"] * scale, 0.2):.2f}"'
    said = escape(f"{event['name']}, {event['dur']:.1f} us, {event['args'].get('line', '')}")
    fill = COLOURS.get(event["cat"], OTHER)
    return f'<rect {box} height="{ROW - 2:g}" fill="{fill}"><title>{said}</title></rect>'


def _curve(events: list[Event], y: float, scale: float) -> Iterator[str]:
    """Return the curve of the bytes that are alive, with a label for the largest number."""
    most, base = max(event["args"]["bytes"] for event in events), y + CURVE
    points, height = [f"{LEFT:g},{base:g}"], base
    for event in events:
        x = LEFT + event["ts"] * scale
        points.append(f"{x:.1f},{height:.1f}")
        height = base - (CURVE - 4) * event["args"]["bytes"] / most
        points.append(f"{x:.1f},{height:.1f}")
    points += [f"{LEFT + WIDTH:g},{height:.1f}", f"{LEFT + WIDTH:g},{base:g}"]
    yield f'<text x="4" y="{y + 18:g}">{escape(events[0]["name"])}</text>'
    yield f'<text x="4" y="{y + 34:g}">at most {most / 1e6:.0f} MB</text>'
    yield f'<polygon points="{" ".join(points)}" fill="#b04a5a" fill-opacity="0.3" stroke="#b04a5a"/>'


def _legend(y: float) -> Iterator[str]:
    for number, (kind, colour) in enumerate(COLOURS.items()):
        x = LEFT + 110 * number
        yield f'<rect x="{x:g}" y="{y + 8:g}" width="14" height="14" fill="{colour}"/>'
        yield f'<text x="{x + 20:g}" y="{y + 19:g}">{kind}</text>'
