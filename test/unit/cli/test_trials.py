"""``shardc trials``: trials go to files and come back, whole or not at all; ranges of sizes are summed up."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "tuner"))

from kernel_tasks import rows

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.cli import main
from shardc.tuner.database.database import open_database


def trial(tile: int, ratio: float) -> Trial:
    return Trial(Point.of("t", {"tile": tile}), Outcome.MEASURED, ratio, ratio * 1e-3)


@pytest.fixture(autouse=True)
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "one.db"))
    with open_database() as database:
        database.record(rows(32), [trial(8, 0.5), trial(16, 0.6), trial(32, 0.9)])
        database.record(rows(48), [trial(8, 0.7), trial(16, 0.6)])


def test_trials_travel_to_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    file = tmp_path / "trials.jsonl"
    assert main(["trials", "export", str(file)]) == 0
    assert "5 trials" in capsys.readouterr().out
    assert main(["trials", "export", "--best", str(tmp_path / "best.jsonl")]) == 0
    assert "2 trials" in capsys.readouterr().out
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "two.db"))
    for said in ("5 trials that were not there", "0 trials that were not there"):
        assert main(["trials", "import", str(file)]) == 0
        assert said in capsys.readouterr().out
    with open_database() as database:
        assert database.best(rows(32)).ratio == 0.5
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "three.db"))
    assert main(["trials", "import", str(tmp_path / "two.db")]) == 0  # a database, too
    assert "5 trials" in capsys.readouterr().out


def test_a_file_that_is_no_export_is_named(tmp_path: Path, capsys):
    file = tmp_path / "notes.txt"
    file.write_text("milk\n")
    assert main(["trials", "import", str(file)]) == 2
    assert "line 1 is not part of an export" in capsys.readouterr().err
    assert main(["trials", "export", str(tmp_path / "none" / "x.jsonl")]) == 2
    assert "UnwritableOutput" in capsys.readouterr().err


def test_a_damaged_database_of_another_is_named_and_left_as_it_is(tmp_path: Path, capsys):
    file = tmp_path / "theirs.db"
    file.write_bytes(b"SQLite format 3\0 and no more")
    before = sorted(p.name for p in tmp_path.iterdir())
    assert main(["trials", "import", str(file)]) == 2
    assert "UnreadableInput" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_the_best_are_kept(capsys):
    assert main(["trials", "prune", "--keep", "1"]) == 0
    assert "3 trials are gone" in capsys.readouterr().out
    with open_database() as database:
        assert [t.ratio for t in database.trials(rows(32))] == [0.5]


def test_ranges_say_what_is_lost(capsys):
    assert main(["trials", "ranges", "--most", "1", "--bound", "1"]) == 0
    said = capsys.readouterr().out
    assert (
        "1 configuration for 2 sizes: at worst 1.167 of the time with its own" in said and "t(tile=8)" in said
    )
    assert main(["trials", "ranges", "--bound", "1.0"]) == 0
    assert "2 configurations for 2 sizes: at worst 1.000" in capsys.readouterr().out
    assert main(["trials", "ranges", "--target", "sm_90"]) == 0
    assert "no kernel was measured at several sizes" in capsys.readouterr().out
