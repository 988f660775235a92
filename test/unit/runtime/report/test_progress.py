"""Progress is shown after two seconds, by a clock of the tests; nothing here sleeps."""

import io
import logging
from collections.abc import Iterator

import pytest

from shardc.runtime.report import progress
from shardc.runtime.report.progress import ERASE, Display


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, clock: Clock, terminal: io.StringIO) -> Iterator[Display]:
    """A display on a terminal that phases and steps go to, without its thread."""
    display = Display("compile_step", terminal, clock)
    monkeypatch.setattr(progress, "_shown", display)
    yield display


def test_two_seconds_say_nothing(shown: Display, clock: Clock, terminal: io.StringIO) -> None:
    clock.now += 1.9
    assert shown.tick() == pytest.approx(0.1)
    shown.erase()
    assert terminal.getvalue() == ""


def test_a_terminal_has_one_line_that_is_erased(shown: Display, clock: Clock, terminal: io.StringIO) -> None:
    clock.now += 2.1
    with progress.phase("kernels"):
        progress.step("loops", 3, 12)
        shown.tick()
        progress.step("machine code")
        clock.now += 0.9
        shown.tick()
    clock.now += 3
    shown.tick()
    shown.erase()
    assert terminal.getvalue().split(ERASE) == [
        "",
        "compile_step: kernels: loops, 3 of 12 (2 s)",
        "compile_step: kernels: machine code (3 s)",
        "compile_step (6 s)",
        "",
    ]
    assert "\n" not in terminal.getvalue()


def test_what_else_is_printed_stands_on_a_line_of_its_own(
    shown: Display, clock: Clock, terminal: io.StringIO
) -> None:
    clock.now += 3
    shown.tick()
    with progress.erased():
        terminal.write("a warning\n")
    clock.now += 1
    shown.tick()
    assert terminal.getvalue() == f"{ERASE}compile_step (3 s){ERASE}a warning\n{ERASE}compile_step (4 s)"


def test_a_log_has_a_line_after_two_seconds_and_then_every_ten(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    display, said = Display("proof", None, clock), []
    with caplog.at_level(logging.INFO, "shardc.progress"):
        for _ in range(100):
            clock.now += 0.25
            display.tick()
            said += [clock.now - 100.0] * len(caplog.records)
            caplog.clear()
    assert said == [2.0, 12.0, 22.0]


@pytest.mark.parametrize("name, value", [("RANK", "1"), ("SHARDC_PROGRESS", "0")])
def test_other_ranks_and_who_wants_none_have_no_display(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDC_PROGRESS", "1")
    with progress.work("compile_step"):
        assert progress._shown is not None
    monkeypatch.setenv(name, value)
    with progress.work("compile_step"):
        assert progress._shown is None
        progress.step("kernels", 1, 2)
    assert progress._shown is None


def test_work_inside_of_work_is_a_phase_and_an_error_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_PROGRESS", "1")
    with pytest.raises(KeyError), progress.work("tune"):
        display = progress._shown
        assert display is not None
        with progress.work("compile_step"):
            progress.step("dist-pad", 2, 9)
            assert display.text().startswith("tune: compile_step: dist-pad, 2 of 9 (")
        assert display.text().startswith("tune (")
        raise KeyError
    assert progress._shown is None
