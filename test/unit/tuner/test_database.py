"""Trials on disk: no write of concurrent processes is lost, and choices are of the present generator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kernel_tasks import matmul_gelu, rows
from tune_ship import ship

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.diagnostics.tuner import (
    NotATuningExport,
    TuningDatabaseNewer,
    TuningDatabaseNotWritable,
    TuningDatabaseWarning,
)
from shardc.tuner.database import database as database_module
from shardc.tuner.database import exchange, place, schema, shipped
from shardc.tuner.database.database import Database, open_database
from shardc.tuner.database.place import SHIPPED


@pytest.fixture(scope="module")
def task() -> Task:
    return rows(32)


@pytest.fixture
def database(tmp_path: Path):
    with open_database(tmp_path / "tuning.db") as opened:
        yield opened


def trial(tile: int, ratio: float | None, outcome: Outcome = Outcome.MEASURED, sketch: str = "t") -> Trial:
    return Trial(
        Point.of(sketch, {"tile": tile, "rows": 8}), outcome, ratio, ratio and ratio * 1e-3, said="as it was"
    )


def test_trials_come_back_as_they_were(database: Database, task: Task):
    written = [
        trial(8, 0.9),
        trial(16, None, Outcome.WRONG),
        Trial(Point.of("u", {}), Outcome.BUILT, figures={"registers": 80}),
    ]
    database.record(task, written)
    assert database.trials(task) == written


def test_the_best_was_measured_and_is_of_the_last_trial_of_its_point(database: Database, task: Task):
    assert database.best(task) is None
    database.record(task, [trial(8, 0.5), trial(16, None, Outcome.CRASHED), trial(32, 0.8)])
    database.record(task, [trial(8, 0.9)])  # measured again: it is not so good
    found = database.best(task)
    assert (found.point, found.ratio, found.trials, found.near) == (trial(32, 0.8).point, 0.8, 3, None)


WRITERS = """
import os
from shardc.tuner.database.database import open_database
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Outcome, Trial
path, text = Path(sys.argv[1]), Path(sys.argv[4]).read_text()
writers, count = int(sys.argv[2]), int(sys.argv[3])


def write(number):
    with open_database(path) as database:
        for each in range(count):
            task = Task(text, f"cpu {each % 3}", 1, "rows")
            point = {"n": number + 1, "of": each + 1}
            pair = [Trial(Point.of("t", {**point, "part": p}), Outcome.MEASURED, 0.5 + 1 / (2 + each)) for p in (1, 2)]
            database.record(task, pair)
            os.write(1, f"{os.getpid()} {each}\\n".encode())


def start(number):
    child = os.fork()
    if child:
        return child
    try:
        write(number)
        os._exit(0)
    finally:
        os._exit(1)


children = [start(number) for number in range(writers)]
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""  # noqa: E501


def start_writers(path: Path, writers: int, count: int, text: Path) -> subprocess.Popen[str]:
    """A process with ``writers`` children that record ``count`` pairs of trials each, and print who they are
    and the number of each pair when it is recorded.
    """
    script = f"import sys\nfrom pathlib import Path\nsys.path[:0] = {sys.path!r}\n{WRITERS}"
    command = [sys.executable, "-c", script, str(path), str(writers), str(count), str(text)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def pairs_of(path: Path, text: Path) -> dict[tuple[int, int], int]:
    """How many trials there are of each pair."""
    found: dict[tuple[int, int], int] = {}
    with open_database(path) as database:
        for target in range(3):
            for each in database.trials(Task(text.read_text(), f"cpu {target}", 1)):
                key = (each.point.config["n"] - 1, each.point.config["of"] - 1)
                found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.slow
def test_eight_processes_write_at_once(tmp_path: Path, task: Task):
    path, text = tmp_path / "tuning.db", tmp_path / "task.mlir"
    text.write_text(task.text)
    process = start_writers(path, 8, 25, text)
    assert process.communicate()[0].count("\n") == 8 * 25 and process.returncode == 0
    assert pairs_of(path, text) == {(n, each): 2 for n in range(8) for each in range(25)}


@pytest.mark.slow
def test_a_process_killed_while_it_writes_leaves_what_it_had_recorded(tmp_path: Path, task: Task):
    path, text = tmp_path / "tuning.db", tmp_path / "task.mlir"
    text.write_text(task.text)
    process = start_writers(path, 1, 100_000, text)
    said = [process.stdout.readline() for _ in range(20)]
    os.kill(int(said[0].split()[0]), signal.SIGKILL)
    said += process.communicate()[0].splitlines()
    assert process.returncode
    found = pairs_of(path, text)  # opening it checks the whole file
    assert set(found.values()) == {2}  # pairs are there whole or not at all
    recorded = {int(line.split()[1]) for line in said if line.strip()}
    assert recorded <= {each for _, each in found}  # and all that it was told were recorded
    assert len(found) <= len(recorded) + 1


def test_trials_of_another_generator_are_kept_and_not_chosen(database: Database, task: Task, monkeypatch):
    monkeypatch.setattr("shardc.tuner.database.database.generator", lambda target: "cpu of old")
    database.record(task, [trial(8, 0.1)])
    monkeypatch.undo()
    assert database.best(task) is None and database.trials(task) == []
    database.record(task, [trial(16, 0.9)])
    assert database.best(task).ratio == 0.9
    (count,) = database.connection.execute("SELECT count(*) FROM trials").fetchone()
    assert count == 2


def test_other_sizes_of_the_same_kernel_lend_their_point(database: Database):
    database.record(rows(32), [trial(8, 0.5)])
    near = database.best(rows(48))
    assert (near.point, near.near) == (trial(8, 0.5).point, rows(32).label)
    assert database.best(rows(1024)) is None  # that is not near
    assert database.best(matmul_gelu()) is None  # and that another kernel
    assert database.best(replace(rows(48), threads=4)) is None
    database.record(rows(64), [trial(16, 0.99)])
    assert database.best(rows(48)).point == trial(8, 0.5).point  # what gains nothing is not worth it


def test_a_later_schema_is_refused_and_an_earlier_one_migrated(tmp_path: Path, task: Task, monkeypatch):
    path = tmp_path / "tuning.db"
    with open_database(path) as database:
        database.record(task, [trial(8, 0.5)])
    later = (*schema.MIGRATIONS, "ALTER TABLE tasks ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey'")
    for module in (schema, database_module):
        monkeypatch.setattr(module, "MIGRATIONS", later)
    with open_database(path) as database:
        assert database.connection.execute("SELECT colour FROM tasks").fetchall() == [("grey",)]
        assert database.best(task).ratio == 0.5
    monkeypatch.undo()
    with pytest.raises(TuningDatabaseNewer, match=r"schema 3; this shardc knows schemas up to 2"):
        open_database(path)
    assert path.exists()


def test_a_damaged_file_is_moved_aside(tmp_path: Path, task: Task):
    path = tmp_path / "tuning.db"
    with open_database(path) as database:
        database.record(task, [trial(8, 0.5)])
    content = path.read_bytes()
    path.write_bytes(b"SQLite format 3\0" + bytes(len(content) - 16))
    with pytest.warns(TuningDatabaseWarning, match="is damaged"), open_database(path) as database:
        assert database.best(task) is None
        database.record(task, [trial(8, 0.5)])
    (aside,) = tmp_path.glob("tuning.db.damaged-*")
    assert aside.stat().st_size == len(content)


def test_a_folder_in_the_way_is_named(tmp_path: Path):
    with pytest.raises(TuningDatabaseNotWritable, match="unable to open"):
        open_database(tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(TuningDatabaseNotWritable, match="Not a directory"):
        open_database(tmp_path / "file" / "folder" / "tuning.db")


def test_a_full_disk_is_named_and_costs_what_was_to_be_written_alone(database: Database, task: Task):
    database.record(task, [trial(8, 0.9)])
    (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
    database.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(TuningDatabaseNotWritable, match="full"):
        database.record(task, [replace(trial(16, 0.5), said="x" * 100_000)])
    assert database.trials(task) == [trial(8, 0.9)] and database.best(task).ratio == 0.9
    database.connection.execute("PRAGMA max_page_count = 1000000")
    database.record(task, [trial(16, 0.5)])
    assert database.best(task).ratio == 0.5


def test_export_import_and_merge_add_what_is_not_there(tmp_path: Path, database: Database, task: Task):
    database.record(task, [trial(8, 0.5), trial(16, None, Outcome.WRONG)])
    exchange.export_trials(database, tmp_path / "all.jsonl")
    exchange.export_trials(database, tmp_path / "best.jsonl", best_only=True)
    with open_database(tmp_path / "other.db") as other:
        assert exchange.import_trials(other, tmp_path / "best.jsonl") == 1
        assert exchange.import_trials(other, tmp_path / "all.jsonl") == 1  # the best is there
        assert exchange.merge(other, database) == 0
        other.record(task, [trial(8, 0.4)])
        assert exchange.merge(database, other) == 1
        assert database.best(task) == other.best(task) and database.best(task).ratio == 0.4


def test_a_file_that_is_no_export_adds_nothing(tmp_path: Path, database: Database, task: Task):
    database.record(task, [trial(8, 0.5)])
    exchange.export_trials(database, tmp_path / "all.jsonl")
    good = (tmp_path / "all.jsonl").read_text()
    (tmp_path / "bad.jsonl").write_text(good + '{"task": {"text": 1}}\n')
    with (
        open_database(tmp_path / "other.db") as other,
        pytest.raises(NotATuningExport, match="line 2"),
    ):
        exchange.import_trials(other, tmp_path / "bad.jsonl")
    with open_database(tmp_path / "other.db") as other:
        assert other.trials(task) == []


def test_prune_keeps_the_best_of_each_task(database: Database, task: Task, monkeypatch):
    monkeypatch.setattr("shardc.tuner.database.database.generator", lambda target: "cpu of old")
    database.record(task, [trial(8, 0.1)])
    monkeypatch.undo()
    other = rows(48)
    database.record(task, [trial(n, 1 - n / 100) for n in range(1, 9)])
    database.record(other, [trial(1, None, Outcome.CRASHED)])
    assert exchange.prune(database, keep=2) == 1 + 6 + 1
    assert [t.point.config["tile"] for t in database.trials(task)] == [7, 8]
    assert database.trials(other) == []


def test_choices_change_with_the_best(database: Database, task: Task, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHARDC_TUNING_DB", str(database.path))
    seen = [place.tuning_choices()]
    for ratio in (0.9, 0.95, 0.8):
        database.record(task, [trial(round(100 * ratio), ratio)])
        seen.append(place.tuning_choices())
    assert seen[0] != seen[1] != seen[3] and seen[1] != seen[2]  # the count of trials is part of the answer


@pytest.fixture
def shipped_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of what is shipped."""
    file = tmp_path / "shipped.jsonl"
    monkeypatch.setenv("SHARDC_SHIPPED_TUNING", str(file))
    shipped.entries.cache_clear()
    return file


def test_what_is_shipped_is_what_gains_and_is_found_without_parsing(
    shipped_here: Path, database: Database, task: Task, monkeypatch
):
    file = shipped_here
    assert shipped.best_shipped(task) is None and not shipped.ships_for(task.target)
    database.record(task, [trial(8, 0.5), trial(16, 0.4), trial(4, None, Outcome.CRASHED)])
    database.record(rows(48), [trial(8, 0.99)])  # not worth it
    assert ship(database, file) == 1 and shipped.ships_for(task.target)
    monkeypatch.setattr(shipped, "signature", None)  # an exact match needs none
    found = shipped.best_shipped(task)
    assert (found.point, found.ratio, found.trials, found.near) == (trial(16, 0.4).point, 0.4, 3, None)
    assert found.origin == "shipped with shardc, 3 trials"


def test_what_is_shipped_holds_for_its_target_threads_and_generator_alone(
    shipped_here, database, task, monkeypatch
):
    file = shipped_here
    database.record(task, [trial(8, 0.5)])
    ship(database, file)
    assert shipped.best_shipped(task)
    assert shipped.best_shipped(replace(task, target="cpu another")) is None
    assert shipped.best_shipped(replace(task, threads=2)) is None
    monkeypatch.setattr(shipped, "generator", lambda target: "cpu of tomorrow")
    assert shipped.best_shipped(task) is None


def test_near_sizes_are_shipped_too_and_other_targets_stay_in_the_file(
    shipped_here: Path, database: Database, task: Task
):
    file = shipped_here
    database.record(task, [trial(8, 0.5)])
    ship(database, file)
    near = shipped.best_shipped(rows(48))
    assert near.near == task.label and near.origin == f"shipped with shardc, 1 trial of {task.label}"
    assert shipped.best_shipped(rows(512)) is None
    database.record(replace(task, target="cpu other"), [trial(4, 0.3)])
    assert ship(database, file, "cpu other") == 1
    assert shipped.best_shipped(task).ratio == 0.5
    assert shipped.best_shipped(replace(task, target="cpu other")).ratio == 0.3
    assert file.read_text().count("\n") == 2


def test_nothing_shipped_is_used_where_the_user_says_so(shipped_here, database, task, monkeypatch):
    database.record(task, [trial(8, 0.5)])
    before = place.tuning_choices()
    ship(database, shipped_here)
    place.shipped_choices.cache_clear()
    assert place.tuning_choices() != before and shipped.best_shipped(task)
    monkeypatch.setenv("SHARDC_SHIPPED_TUNING", "")
    assert place.tuning_choices() == before and shipped.best_shipped(task) is None


def test_the_shipped_file_is_read_whole():
    """Whatever is shipped is of this form, and says what it is for."""
    for line in SHIPPED.read_text().splitlines() if SHIPPED.is_file() else ():
        entry = json.loads(line)
        assert (
            entry["target"].split()[0] in ("cpu", "sm_80", "sm_90", "sm_100", "gfx942")
            and 0 < entry["ratio"] < 1
        )
        assert shipped._found(entry).point.config
