"""``shardc tune``: what it prints, what it refuses, and that it goes on where it was; kernels have known
times.
"""

import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.trial import Outcome, Trial
from shardc.cli import _plain_warnings, main
from shardc.commands import tune as driver
from shardc.diagnostics.tuner import TuningDatabaseWarning

SCRIPT = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8))
    return model, torch.optim.SGD(model.parameters(), lr=0.1), (torch.randn(32, 64),), lambda out, batch: out.pow(2).mean()
"""  # noqa: E501


class KnownTimes:
    """In place of the measurer: larger values are faster, by a little."""

    measured: list[Point] = []

    def __init__(self, *_: object) -> None:
        KnownTimes.measured = []

    def __enter__(self) -> "KnownTimes":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was started."""

    def begin(self, *_: object) -> None:
        """Nothing to start."""

    def measure(self, task, points):
        KnownTimes.measured += points
        return [self.confirm(task, p) for p in points]

    def confirm(self, task, point):
        ratio = 1.0 - 0.001 * sum(v.bit_length() for _, v in point.values)
        return Trial(point, Outcome.MEASURED, ratio, ratio * 1e-5)


@pytest.fixture(autouse=True)
def own_files(monkeypatch, tmp_path):
    monkeypatch.setenv("SHARDC_TUNING_DB", str(tmp_path / "tuning.db"))
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(driver, "Measurer", KnownTimes)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.slow
def test_a_session_prints_its_kernels_and_goes_on_where_it_was(script, capsys, tmp_path):
    plot = tmp_path / "best.svg"
    assert main(["tune", script, "--trials", "16", "--regret", "0", "--plot", str(plot)]) == 0
    said = capsys.readouterr().out
    assert "gelu_native_layer_norm 32x128 f32" in said and "stopped: 16 trials are spent" in said
    assert "▇" in said and len(KnownTimes.measured) == 16
    assert plot.read_text().startswith("<svg") and "gelu_native_layer_norm" in plot.read_text()
    assert main(["tune", script, "--trials", "20", "--regret", "0"]) == 0
    assert "16 of which were in the database" in capsys.readouterr().out and len(KnownTimes.measured) == 4
    assert main(["tune", script, "--trials", "16", "--regret", "0", "--no-resume"]) == 0
    assert len(KnownTimes.measured) == 16


def test_a_budget_of_zero_is_the_analytic_choice(script, capsys):
    assert main(["tune", script, "--trials", "0"]) == 0
    said = capsys.readouterr().out
    assert "stopped: a budget of zero: the analytic choice" in said and "analytic rows(" in said
    assert KnownTimes.measured == []


def test_spaces_are_printed_with_pins(script, capsys):
    assert main(["tune", script, "--space", "--pin", "piece=256"]) == 0
    said = capsys.readouterr().out
    assert "legal points" in said and "piece: 256 (pinned)" in said and "first by estimate:" in said


def test_a_file_pins_and_forbids(script, capsys, tmp_path):
    points = tmp_path / "points.json"
    points.write_text('{"pin": {"piece": 128}, "forbid": [{"sketch": "rows", "streamed_bytes": 1}]}')
    assert main(["tune", script, "--space", "--points", str(points), "--pin", "piece=64"]) == 0
    said = capsys.readouterr().out
    assert "piece: 64 (pinned)" in said
    points.write_text("{")
    assert main(["tune", script, "--points", str(points)]) == 2
    assert "MalformedConstraints" in capsys.readouterr().err


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["--target", "sm_42"],
            "UnknownTarget: there is no target 'sm_42'; known ones are sm_80, sm_90, sm_100, gfx942, cpu",
        ),
        (["--strategy", "annealing"], "UnknownStrategy: there is no search strategy 'annealing'"),
        (["--pin", "piece"], "BadPin: the pin 'piece' cannot be read"),
        (["--pin", "piece=0"], "BadPin: the pin 'piece=0' cannot be read"),
        (["--pin", "peice=64"], "UnknownConstraint: no kernel has the parameter 'peice'"),
    ],
)
def test_bad_input_is_named(script, arguments, expected, capsys):
    assert main(["tune", script, *arguments]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("command", [["tune"], ["explain", "--fusion"]])
def test_a_loss_that_fails_outside_the_script_is_of_its_build(command, tmp_path, capsys):
    """No line of the user's raises: the line that defines build is said, not one of the command line's
    libraries.
    """
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("lambda out, batch: out.pow(2).mean()", "torch.nn.CrossEntropyLoss()"))
    assert main([command[0], str(path), *command[1:]]) == 2
    assert f"at: {path}:" in capsys.readouterr().err


def test_a_folder_without_kernels_and_a_picture_that_cannot_be_written_are_said_first(
    script, tmp_path, capsys
):
    out = str(tmp_path / "out")
    assert main(["compile", script, "--mesh", "data=1", "--no-fuse", "-o", out]) == 0
    assert main(["tune", out]) == 2
    assert "NothingToTune" in capsys.readouterr().err
    assert main(["tune", script, "--plot", str(tmp_path / "none" / "best.svg")]) == 2
    assert "UnwritableOutput" in capsys.readouterr().err and KnownTimes.measured == []


def test_a_program_without_kernels_is_said(tmp_path, capsys):
    path = tmp_path / "empty.mlir"
    path.write_text("func.func @main() { return }")
    assert main(["tune", str(path)]) == 2
    assert "NothingToTune" in capsys.readouterr().err


def test_a_database_of_a_later_version_is_refused(script, tmp_path, capsys):
    assert main(["tune", script, "--trials", "8", "--regret", "0"]) == 0
    with sqlite3.connect(tmp_path / "tuning.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    assert main(["tune", script, "--trials", "8"]) == 2
    assert "TuningDatabaseNewer" in capsys.readouterr().err


def test_an_artefact_is_tuned_like_its_script(script, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["compile", script, "--mesh", "data=1", "-o", str(out)]) == 0
    assert main(["tune", str(out), "--trials", "8"]) == 0
    assert "gelu_native_layer_norm 32x128 f32" in capsys.readouterr().out


def test_an_interrupt_prints_what_was_found_and_the_same_command_goes_on(script, capsys, monkeypatch):
    def measure(self, task, points):
        for point in points:
            if len(KnownTimes.measured) == 11:
                raise KeyboardInterrupt
            KnownTimes.measured.append(point)
            yield self.confirm(task, point)

    arguments = ["tune", script, "--trials", "16", "--regret", "0"]
    with monkeypatch.context() as during:
        during.setattr(KnownTimes, "measure", measure)
        assert main(arguments) == 130
    said = capsys.readouterr().out
    assert (
        "stopped: interrupted" in said
        and "11 trials in" in said
        and "the same command goes on from here" in said
    )
    assert main(arguments) == 0
    assert "11 of which were in the database" in capsys.readouterr().out


def test_each_round_is_progress(script, monkeypatch):
    monkeypatch.setenv("SHARDC_PROGRESS", "1")
    said = []
    monkeypatch.setattr("shardc.runtime.report.progress.step", lambda what, *_: said.append(what))
    assert main(["tune", script, "--trials", "8", "--regret", "0"]) == 0
    rounds = [line for line in said if " trials; " in line]
    assert rounds[0].startswith("0 trials; ") and rounds[0].endswith("8 trials left")
    assert rounds[-1].startswith("8 trials; ") and rounds[-1].endswith("of untuned, 0 trials left")


def test_a_damaged_database_is_said_and_a_new_one_is_begun(script, tmp_path, capsys):
    (tmp_path / "tuning.db").write_bytes(b"no database" * 1000)
    with pytest.warns(TuningDatabaseWarning, match=r"tuning.db is damaged .* a new one was created"):
        assert main(["tune", script, "--trials", "8", "--regret", "0"]) == 0
    assert "8 trials in" in capsys.readouterr().out


def test_our_warnings_are_a_line_without_our_source():
    with _plain_warnings():
        assert (
            warnings.formatwarning("it is damaged", TuningDatabaseWarning, "tune.py", 3)
            == "TuningDatabaseWarning: it is damaged\n"
        )
        assert "torch.py:3: UserWarning: slow" in warnings.formatwarning("slow", UserWarning, "torch.py", 3)


def test_the_package_is_a_command():
    found = subprocess.run(
        [sys.executable, "-m", "shardc", "tune", "--help"], capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith("Usage: shardc tune")


def test_help_names_every_option():
    from shardc.cli.app import app

    said = CliRunner().invoke(app, ["tune", "--help"]).output
    assert all(
        option in said
        for option in ("--trials", "--seconds", "--target", "--strategy", "--seed", "--space", "--no-resume")
    )


def test_the_python_interface_is_the_command_s(script):
    import shardc

    result = shardc.tune(Path(script), trials=8, regret=0.0)
    assert result.trials == 8 and {t.job.task.target.split()[0] for t in result.tasks} == {"cpu"}
