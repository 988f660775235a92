"""``SHARDC_LOGS`` turns topics on and off, and reports unknown names."""

import logging
from collections.abc import Iterator

import pytest

from shardc.runtime.errors import BadVariable
from shardc.runtime.report import logs
from shardc.runtime.report.logs import CACHE, FUSION, OFF, PLAN, PROGRESS, TOPICS, read


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SHARDC_LOGS", raising=False)
        logs.start()


def start(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SHARDC_LOGS", text)
    logs.start()


def test_a_plus_logs_more_and_a_minus_nothing() -> None:
    levels, wants_help = read("plan,+fusion, -cache")
    assert levels == {"plan": logging.INFO, "fusion": logging.DEBUG, "cache": OFF} and not wants_help


def test_a_name_wins_over_all_wherever_it_stands() -> None:
    levels, _ = read("-progress,+all")
    assert levels == {**dict.fromkeys(TOPICS, logging.DEBUG), "progress": OFF}


def test_an_unknown_name_is_an_error_with_the_nearest_and_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadVariable, match=r"is not a topic(.|\n)*did you mean fusion\?(.|\n)*timing"):
        start(monkeypatch, "plan,fusoin")


def test_help_prints_every_topic(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    start(monkeypatch, "help")
    said = capsys.readouterr().err
    assert all(f"  {name} " in said for name in (*TOPICS, "all")) and "+name" in said


def test_each_line_has_its_topic_and_under_torchrun_its_rank(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start(monkeypatch, "plan,-cache")
    PLAN.info("a weight\nis cut")
    PLAN.debug("more")
    CACHE.error("none of this")
    FUSION.info("nor of this")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    PLAN.info("again")
    assert capsys.readouterr().err.splitlines() == [
        "shardc.plan: a weight",
        "shardc.plan: is cut",
        "[rank3] shardc.plan: again",
    ]


def test_without_the_variable_topics_are_pythons_own_loggers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    start(monkeypatch, "plan")
    start(monkeypatch, "")
    assert not PLAN.handlers and PLAN.propagate and not PLAN.isEnabledFor(logging.INFO)
    with caplog.at_level(logging.INFO, "shardc.plan"):
        PLAN.info("for whoever listens")
    assert "for whoever listens" in caplog.text and not capsys.readouterr().err


def test_progress_is_logged_unless_it_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, "plan")
    assert PROGRESS.isEnabledFor(logging.INFO)
    start(monkeypatch, "-progress")
    assert not PROGRESS.isEnabledFor(logging.CRITICAL)
