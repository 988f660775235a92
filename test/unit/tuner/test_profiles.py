"""Measured calls in the tuner's database."""

import sqlite3

import pytest

from shardc.cost.profile import Conditions, PredictedStep
from shardc.tuner.database.database import open_database
from shardc.tuner.database.place import database_path
from shardc.tuner.database.profiles import read_profile, read_program, record_profile, record_program

HERE = Conditions("a machine, 2 cores", 4, 1)


@pytest.fixture(autouse=True)
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "tuning.db"))


def test_what_was_measured_last_is_read():
    record_profile(HERE, {"mm": 0.5, "relu": 0.25})
    record_profile(HERE, {"mm": 0.125})
    assert read_profile(HERE).seconds == {"mm": 0.125, "relu": 0.25}


@pytest.mark.parametrize(
    "other", [("another", 4, 1), ("a machine, 2 cores", 2, 1), ("a machine, 2 cores", 4, 2)]
)
def test_other_conditions_have_figures_of_their_own(other):
    record_profile(HERE, {"mm": 0.5})
    assert read_profile(Conditions(*other)).seconds == {}


def test_a_row_that_is_no_figure_is_refused():
    record_profile(HERE, {"mm": 0.5})
    connection = sqlite3.connect(database_path())
    with connection:
        connection.execute("UPDATE profiles SET seconds = 'fast'")
    connection.close()
    with pytest.raises(sqlite3.DatabaseError):
        read_profile(HERE)


def test_a_database_without_profiles_gets_them():
    with open_database() as made:
        made.connection.execute("DROP TABLE profiles")
        made.connection.execute("DROP TABLE programs")
        made.connection.execute("PRAGMA user_version = 1")
    assert read_profile(HERE).seconds == {}


def test_what_was_predicted_of_a_program():
    record_program(HERE, "a hash", PredictedStep(0.5, 1 << 20))
    assert read_program(HERE, "a hash") == PredictedStep(0.5, 1 << 20)
    assert read_program(HERE, "another") is None
