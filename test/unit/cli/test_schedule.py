"""``shardc schedule``: printed and written output, and errors for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardc.cli import main
from shardc.dialects.pipe.csv_form import read_csv, read_steps
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.registry import SCHEDULES

ONE_F_ONE_B = """\
1f1b: 4 stages on 4 ranks, 4 micro-batches
bubble rate 0.4286, step 21 s, longest rank 21 s
rank  stages  waits  peak activations  received values
   0       0  42.9%                 4                1
   1       1  42.9%                 3                2
   2       2  42.9%                 2                2
   3       3  42.9%                 1                1

rank 0 |F0F1F2F3............B0--..B1--..B2--..B3--|
rank 1 |..F0F1F2........B0--F3B1--..B2--..B3--....|
rank 2 |....F0F1....B0--F2B1--F3B2--..B3--........|
rank 3 |......F0B0--F1B1--F2B2--F3B3--............|
"""


def test_1f1b(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "1f1b", "--stages", "4", "-m", "4", "--width", "60"]) == 0
    assert capsys.readouterr().out.startswith(ONE_F_ONE_B)


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*SCHEDULES, "auto"]


@pytest.mark.parametrize("name", [*SCHEDULES, "auto"])
def test_every_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", name, "--stages", "4", "-m", "8", "--times", "1,1,0.5,0.1"]) == 0
    text = capsys.readouterr().out
    assert "bubble rate" in text and "rank 0 |" in text.replace("rank  0", "rank 0")
    assert ("changes the mathematics" in text) == name.startswith("pipedream")


def test_times_of_each_stage_and_links(capsys: pytest.CaptureFixture[str]) -> None:
    def step(arguments: str) -> str:
        assert main(["schedule", *arguments.split()]) == 0
        return capsys.readouterr().out.split("step ")[1].split(" s")[0]

    two = "fill-drain --stages 2 -m 2 --times 1,1,1,2"
    assert (
        step(two) == "13"
        and step(f"{two} --no-overlap") == "17"
        and step(f"{two} --ranks-per-node 1") == "14"
    )
    assert step("1f1b --stages 2 -m 1 --times 1,2,3 --times 4,5,6") == "21"
    assert step("chimera --stages 2 -m 2 --times 1,2,3 --times 4,5,6") == "21"
    assert main(["schedule", "1f1b", "--stages", "3", "--times", "1,2,3", "--times", "4,5,6"]) == 2
    assert "2 stages' are given, of 3" in capsys.readouterr().err


def test_times_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The step of a schedule at the times of a run is that of the run, where it is the run's own schedule."""
    run = str(tmp_path / "run.json")
    times = ["--times", "1,2,3", "--times", "4,5,6"]
    first = ["schedule", "zb-h1", "--stages", "2", "-m", "4"]
    assert main([*first, *times, "--trace", run]) == 0
    measured = capsys.readouterr().out
    assert main([*first, "--times-of", run]) == 0
    assert capsys.readouterr().out == measured
    assert main(["schedule", "auto", "--stages", "3", "-m", "4", "--times-of", run]) == 2
    assert "the trace has no F of stage 2" in capsys.readouterr().err


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"csv": "a.csv", "csv-transfers": "b.csv", "svg": "a.svg", "html": "a.html", "trace": "a.json"}
    written = [part for option, name in names.items() for part in (f"--{option}", str(tmp_path / name))]
    assert main(["schedule", "v-half", "--stages", "8", "-m", "8", *written]) == 0
    schedule = by_name("v-half", 8, 8)
    assert read_csv((tmp_path / "a.csv").read_text()).orders == schedule.orders
    assert any("SEND_F" in str(step) for step in read_steps((tmp_path / "b.csv").read_text())[0])
    assert "v-half, simulated" in (tmp_path / "a.svg").read_text()
    capsys.readouterr()

    again = ["schedule", str(tmp_path / "a.csv"), "--stages", "8", "-m", "8"]
    assert main([*again, "--measured", str(tmp_path / "a.json"), "--html", str(tmp_path / "b.html")]) == 0
    assert "a: 8 stages on 4 ranks" in capsys.readouterr().out
    assert "a, measured" in (tmp_path / "b.html").read_text()
    assert json.loads((tmp_path / "a.json").read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("onef1b", "no schedule 'onef1b'"),
        ("1f1b --times 1,2", "there are 2 of them"),
        ("1f1b --times 1,2,x", "could not convert"),
        ("1f1b --times 0,0,0", "not all 0"),
        ("1f1b --times 1,1,nan", "at least 0"),
        ("seq-1f1b --option slices", "the option 'slices' can't be read"),
        ("1f1b --option slices=2", "has no option 'slices'"),
        ("1f1b --memory-limit 2", "rank 0 hold 3 bytes of activations in 0F2; its limit is 2"),
        ("1f1b -m 0", "needs at least 1 micro-batch, not 0"),
        ("nowhere.csv", "can't read nowhere.csv"),
        ("1f1b --svg nowhere/a.svg", "nowhere/a.svg: "),
        ("nowhere.csv --trace nowhere/run.json", "nowhere/run.json: "),
        ("1f1b --svg a.svg --html ./a.svg", "a.svg: another output goes there"),
        ("1f1b --stages 100000", "TooLargeToPlay: 100000 stages on 100000 ranks"),
        ("1f1b --stages 3 --ranks 100000", "TooLargeToPlay: 3 stages on 100000 ranks"),
        ("1f1b --stages -100000", "TooLargeToPlay"),
        ("auto --stages 1024 -m 1024", "TooLargeToPlay"),
        ("nowhere.csv -m 100000", "TooLargeToPlay"),
    ],
)
def test_bad_input(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", *arguments.split()]) == 2
    assert said in capsys.readouterr().err


def test_a_file_for_another_cut_or_another_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("0F0,0B0\n1F0,1B0\n")
    assert main(["schedule", str(path), "--stages", "2", "-m", "1"]) == 0
    assert main(["schedule", str(path), "--stages", "4", "-m", "1"]) == 2
    assert "the schedule mine is for 2 stages, not for 4" in capsys.readouterr().err
    assert main(["schedule", str(path), "--stages", "2", "-m", "2"]) == 2
    assert "schedule mine cannot run: 0F1 is missing" in capsys.readouterr().err


def test_the_transfers_of_a_file_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both ranks send before they receive: that runs where sends do not wait, or go together."""
    path = tmp_path / "late.csv"
    first = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1"
    second = "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1"
    path.write_text(f"{first}\n{second}\n")
    assert main(["schedule", str(path), "--stages", "2", "-m", "2"]) == 0
    assert (
        "deadlocks with blocking sends: 0SEND_F1 waits for 1RECV_F1, but rank 1 is stuck before that, at "
        "1SEND_B0" in capsys.readouterr().out
    )
    path.write_text(f"{first}\n{second}\n".replace(",0SEND_F1", ""))
    assert main(["schedule", str(path), "--stages", "2", "-m", "2"]) == 2
    assert "0SEND_F1 on rank 0 is missing" in capsys.readouterr().err


def test_stages_that_are_no_chain(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["schedule", "1f1b", "--stages", "3", "-m", "4", "--reads", "1="]
    assert main([*given, "--reads", "2=0,1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "longest path: 2 of 3 stages"
    assert [line.split("  ")[-1].strip() for line in lines[3:7]] == ["reads", "none", "none", "0, 1"]
    assert main([*given, "--reads", "3=0"]) != 0
    assert "BadArgument" in capsys.readouterr().err
