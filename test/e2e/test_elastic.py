"""A run that loses a rank goes on with those that are left, and its losses are those of one device."""

from __future__ import annotations

import re
from pathlib import Path

import guides
import pytest
import torch
from torch import nn

from shardc.cli import main

pytestmark = pytest.mark.processes

FILES, (RUN, PLAN) = guides.scripts("elastic")
DIES = """
    import os, signal
    if step.steps_done == 5 and step.rank == 1 and os.environ["WORLD_SIZE"] == "3":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def eager_losses() -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    losses = list[float]()
    for number in range(8):
        loss = model(rows[number * 8 : number * 8 + 8]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
def test_a_run_goes_on_without_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The guide's script, in which a rank kills itself."""
    for name, text in {"CACHE_DIR": str(tmp_path / "cache"), "STEP_CACHE": "1", "PLAN_CACHE": "1"}.items():
        monkeypatch.setenv(f"SHARDC_{name}", text)
    monkeypatch.chdir(tmp_path)
    [(name, script)] = FILES.items()
    alive = "    if step.steps_done % 2"
    assert alive in script
    (tmp_path / name).write_text(script.replace(alive, DIES + alive))
    assert main(RUN.split()[1:]) == 0
    said = capfd.readouterr()
    assert "rank 1 was killed by SIGKILL: 2 of 3 processes go on from the last checkpoint" in said.err
    assert re.findall(r"^plan: auto on (.*)$", said.err, re.MULTILINE) == ["memory 3", "memory 2"]
    found = [(int(n), float(loss)) for n, loss in re.findall(r"^step (\d) loss ([\d.]+)$", said.out, re.M)]
    assert [number for number, _ in found] == [0, 1, 2, 3, 4, 4, 5, 6, 7]
    wanted = eager_losses()
    for number, loss in found:
        assert loss == pytest.approx(wanted[number], abs=2e-6), number


@pytest.mark.slow
def test_plans_for_a_later_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The guide's command, with a shorter search."""
    monkeypatch.chdir(tmp_path)
    guides.write_config(tmp_path)
    assert main([*PLAN.split()[1:], "--search-seconds", "4"]) == 0
    assert re.search(r"^ +16  h100-8x2 ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.slow
def test_more_ranks_die_than_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "import os, signal\nif os.environ['RANK'] == '0':\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    Path("dies.py").write_text(lines)
    assert main(["run", "dies.py", "--nproc", "3", "--elastic", "1"]) == 1
    said = capfd.readouterr().err
    assert "rank 0 was killed by SIGKILL: 2 of 3 processes go on" in said
    assert "TooFewRanks: rank 0 was killed by SIGKILL: 1 of 3 processes are left" in said


@pytest.mark.slow
def test_an_error_of_a_rank_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fails.py").write_text("import sys\nsys.exit(3 if sys.argv[1:] == ['--now'] else 0)\n")
    assert main(["run", "fails.py", "--nproc", "2", "--elastic", "1", "--", "--now"]) == 1
    assert "RankFailed: rank" in capfd.readouterr().err
    assert main(["run", "fails.py", "--nproc", "2", "--elastic", "1"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("folder --elastic 1", "--elastic is for a script, but folder is a folder"),
        ("folder -- more", "an argument of a script is for a script, but folder is a folder"),
        ("train.py --steps 3", "--steps is for a folder, but train.py is a script"),
        ("train.py --save here", "--save is for a folder, but train.py is a script"),
    ],
)
def test_options_of_the_other_source(
    arguments: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("train.py").write_text("")
    assert main(["run", "--nproc", "2", *arguments.split()]) == 2
    assert f"NotOfASource: {said}" in capfd.readouterr().err
