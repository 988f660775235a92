"""Pictures of pipelines agree with the simulation, and traces can be read back."""

from __future__ import annotations

import itertools
import json
from xml.etree import ElementTree

import pytest

from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import simulate
from shardc.cost.timeline import Timeline
from shardc.diagnostics.passes.pipeline import BadTrace
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.one_f_one_b import one_f_one_b
from shardc.report.timeline_svg import COLOURS, LEFT, ROW, WIDTH, Run, timeline_html, timeline_svg
from shardc.report.timeline_text import timeline_text
from shardc.report.timeline_trace import read_trace, write_trace

COSTS = [StageCost(1, 1, 1, 0.25, activation_bytes=3, weight_bytes=2)] * 8
SVG = "{http://www.w3.org/2000/svg}"


def played(name: str, stages: int = 8) -> Timeline:
    return simulate(by_name(name, stages, 8), COSTS)


def test_text() -> None:
    assert timeline_text(simulate(one_f_one_b(2, 2), [StageCost(1, 1, 1)] * 2), width=18) == (
        "rank 0 |F0F1....B0--..B1--|\nrank 1 |..F0B0--F1B1--....|"
    )


def test_text_of_several_stages_and_of_many_actions() -> None:
    text = timeline_text(played("v-half"), width=200)
    assert {"f", "F", "i", "I", "w", "W"} <= set(text)
    lengths = {len(line) for line in timeline_text(played("zb-h1"), width=20).splitlines()}
    assert lengths == {len("rank 0 |") + 20 + 1}
    assert timeline_text(Timeline(((), ())), width=4) == "rank 0 |....|\nrank 1 |....|"


@pytest.mark.parametrize("name", ("1f1b", "zb-h1", "v-half", "interleaved"))
def test_svg(name: str) -> None:
    """Each action is a box in its rank's row, as long as its time is of the step; boxes of a row do not
    overlap.
    """
    timeline = played(name)
    root = ElementTree.fromstring(timeline_svg([Run(name, timeline, COSTS)]))
    boxes = [box for box in root.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]
    assert len(boxes) == sum(map(len, timeline.spans))
    rows: dict[float, list[tuple[float, float, str, str]]] = {}
    for box in boxes:
        x, y, width = (float(box.get(key, "nan")) for key in ("x", "y", "width"))
        rows.setdefault(y, []).append((x, x + width, box.get("fill", ""), box.findtext(f"{SVG}title", "")))
    assert len(rows) == len(timeline.spans)
    scale = WIDTH / timeline.step_s
    for (_, row), spans in zip(sorted(rows.items()), timeline.spans, strict=True):
        assert all(one[1] <= other[0] + 0.02 for one, other in itertools.pairwise(row))
        for (left, right, fill, title), span in zip(row, spans, strict=True):
            assert left == pytest.approx(LEFT + span.start_s * scale, abs=0.01)
            assert right == pytest.approx(LEFT + span.end_s * scale, abs=0.02)
            assert fill == COLOURS[span.action.kind] and title.startswith(f"{span.action} (")
    curves = list(root.iter(f"{SVG}polyline"))
    peaks = [float(curve.findtext(f"{SVG}title", "").split("at most ")[1].split()[0]) for curve in curves]
    assert peaks == timeline.peak_bytes(COSTS)


def test_a_picture_scales_and_has_a_text_in_its_place() -> None:
    """Everything lies in the ``viewBox``, which is as large as the picture."""
    root = ElementTree.fromstring(timeline_svg([Run("1f1b <simulated>", played("1f1b"), COSTS)]))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    _, _, width, height = map(float, root.get("viewBox", "").split())
    boxes = [box for box in root.iter(f"{SVG}rect") if box.get("x") is not None]
    assert all(float(b.get("x", 0)) + float(b.get("width", 0)) <= width for b in boxes)
    assert all(float(b.get("y", 0)) + float(b.get("height", 0)) <= height for b in boxes)
    assert root.get("role") == "img"
    assert root.get("aria-label") == "Timeline of a pipeline's ranks: 1f1b <simulated>"


def test_simulated_and_measured_runs_have_one_scale() -> None:
    timeline = played("1f1b")
    slow = read_trace(write_trace([Run("slow", simulate(one_f_one_b(8, 8), [StageCost(2, 2, 2, 0.5)] * 8))]))
    page = timeline_html([Run("simulated", timeline), Run("measured <on> Gloo", slow)], "1 < 2")
    root = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    whole = [float(r.get("width", 0)) for r in root.iter(f"{SVG}rect") if r.get("fill") == "#eeeeee"]
    assert whole == [pytest.approx(WIDTH / 2, abs=0.01)] * 8 + [WIDTH] * 8
    assert float(root.get("height", 0)) > 16 * ROW
    assert (
        "measured &lt;on&gt; Gloo" in page
        and "<pre>1 &lt; 2</pre>" in page
        and "http" not in page.replace("http://www.w3.org/2000/svg", "")
    )


def test_svg_of_another_width() -> None:
    """The picture scales, and says what it shows to those who do not see it."""
    root = ElementTree.fromstring(timeline_svg([Run("1f1b <8>", played("1f1b"))], width=600))
    whole = {float(r.get("width", 0)) for r in root.iter(f"{SVG}rect") if r.get("fill") == "#eeeeee"}
    assert whole == {600.0}
    assert root.get("viewBox") == f"0 0 {LEFT + 610:g} {root.get('height')}"
    assert (root.get("role"), root.get("aria-label")) == ("img", "Timeline of a pipeline's ranks: 1f1b <8>")


def test_a_trace_and_back() -> None:
    timeline = played("zb-h1")
    text = write_trace([Run("simulated", timeline, COSTS)])
    again = read_trace(text)
    for one, other in zip(timeline.spans, again.spans, strict=True):
        for span, read in zip(one, other, strict=True):
            assert span.action == read.action and span.rank == read.rank
            assert (read.start_s, read.end_s) == pytest.approx((span.start_s, span.end_s))
    events = json.loads(text)["traceEvents"]
    sent = [e for e in events if e["ph"] == "s"]
    assert len(sent) == len(timeline.transfers) == len([e for e in events if e["ph"] == "f"])
    most = max(e["args"]["bytes"] for e in events if e["ph"] == "C")
    assert most == max(timeline.peak_bytes(COSTS))


def test_a_trace_of_torch() -> None:
    """The profiler names what torch.distributed.pipelining runs ``PP:2F0``; each process is a rank."""
    event = {"ph": "X", "tid": 7, "dur": 2e6}
    events = [
        {**event, "pid": 10, "name": "PP:1F0", "ts": 7e6},
        {**event, "pid": 9, "name": "PP:0F0", "ts": 5e6},
        {**event, "pid": 9, "name": "aten::mm", "ts": 5e6},
        {**event, "pid": 9, "name": "PP:0SEND_F0", "ts": 7e6},
    ]
    timeline = read_trace(json.dumps({"traceEvents": events}))
    assert [[(str(s.action), s.start_s, s.end_s) for s in row] for row in timeline.spans] == [
        [("0F0", 0, 2)],
        [("1F0", 2, 4)],
    ]


@pytest.mark.parametrize(
    "text",
    (
        "{",
        "[]",
        '{"traceEvents": []}',
        '{"traceEvents": [{"ph": "X", "name": "mm"}]}',
        '[{"ph": "X", "name": "0F0"}]',
        "3",
    ),
)
def test_what_is_no_trace(text: str) -> None:
    with pytest.raises(BadTrace, match=r"run\.json"):
        read_trace(text, where="run.json")
