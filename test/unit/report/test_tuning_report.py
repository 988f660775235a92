"""A session's table, sparklines and picture."""

from xml.etree import ElementTree

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.report.tuning_svg import tuning_svg
from shardc.report.tuning_text import best_so_far, sparkline, tuning_text
from shardc.tuner.session import SessionResult, TaskResult
from shardc.tuner.task_scheduler import Job


def point(n):
    return Point.of("rows", {"piece": n})


def trial(n, ratio):
    return Trial(
        point(n), Outcome.CRASHED if ratio is None else Outcome.MEASURED, ratio, ratio and ratio * 1e-5
    )


def result():
    tried = (trial(1, 1.5), trial(2, None), trial(4, 0.5), trial(8, 0.75))
    fast = TaskResult(Job(Task("a", "cpu"), 3), point(16), point(4), 0.5, 1e-5, tried)
    slow = TaskResult(
        Job(Task("b", "cpu", label="soft<max>"), 1), point(16), point(16), 1.0, 1e-4, (trial(1, 1.5),)
    )
    return SessionResult([fast, slow], "every point was tried", 5, 3, 7.0, 0.0)


def test_the_best_so_far_starts_at_the_default_and_passes_over_failures():
    assert best_so_far(result().tasks[0].trials) == [1.0, 1.0, 0.5, 0.5]


def test_a_sparkline_is_as_long_as_its_values_and_no_longer_than_it_may_be():
    assert sparkline([1.0, 0.5, 0.0]) == "█▄▁"
    assert sparkline([]) == ""
    assert len(sparkline([1.0] * 100, 24)) == 24 and sparkline([1.0] * 99 + [0.5], 4) == "███▄"


def test_the_table_has_the_heaviest_kernel_first_and_the_whole_step():
    lines = tuning_text(result()).splitlines()
    assert lines[1].split()[:7] == ["soft<max>", "1", "100.0", "100.0", "1.000", "76.9%", "1"]
    assert "rows(piece=4)" in lines[2] and "analytic rows(piece=16)" in lines[1]
    assert "5 trials in 7 s, 2 of which were in the database" in lines
    assert lines[-1] == "the kernels of a step take 0.885 of their untuned time"


def test_what_was_compiled_alone_says_what_its_binary_takes():
    figures = {"registers": 96, "spill_bytes": 0, "shared_bytes": 49152}
    made = Trial(point(2), Outcome.BUILT, figures=figures)
    task = TaskResult(Job(Task("a", "sm_90"), 1), point(16), point(2), trials=(made,))
    said = tuning_text(SessionResult([task], "1 trials are spent", 1, 1, 7.0, 0.0))
    assert "rows(piece=2): 96 registers, 48 KiB shared" in said and "their target is not here" in said


def test_what_was_not_tried_is_not_what_is_compiled():
    task = TaskResult(Job(Task("a", "cpu"), 1), point(16), point(16))
    said = tuning_text(SessionResult([task], "a budget of zero: the analytic choice", 0, 0, 7.0, 0.0))
    assert "analytic rows(piece=16)" in said and "what is compiled stays as it is there" in said


def test_the_picture_has_a_line_for_each_kernel():
    tree = ElementTree.fromstring(tuning_svg(result()))
    assert tree.get("viewBox") == f"0 0 {tree.get('width')} {tree.get('height')}"
    assert tree.get("role") == "img" and "over that untuned" in tree.get("aria-label", "")
    lines = tree.findall(".//{*}polyline")
    assert [line.find("{*}title").text for line in lines] == ["soft<max>: 1.000", ": 0.500"]
    assert lines[0].get("points").split()[0] == "60,34"


def test_kernels_of_no_elements_take_no_share():
    task = TaskResult(Job(Task("a", "cpu"), 1, size=0.0), point(16), None, 1.0, 1e-5)
    said = tuning_text(SessionResult([task], "every point was tried", 0, 0, 7.0, 0.0))
    assert "0.0%" in said
