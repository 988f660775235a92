"""A rank that dies, hangs, or fails: the others stop within the time-out, and every message names it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from shardc.commands.run import run_artefact
from shardc.diagnostics.runtime import MeshSizeMismatch, RankFailed, RankRefused

pytestmark = pytest.mark.processes

TIMEOUT_S = 10
"""The time-out of a collective."""
ENDED_S = 150
"""When a rank must have ended: start-up and step, time-out, finding the reason, on a loaded machine."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_without_launcher(
    artefact: Path, own: dict[int, list[str]] | None = None, hangs: int | None = None, **environment: str
) -> tuple[dict[int, int], dict[int, str]]:
    """Exit codes and error outputs of four ranks that nobody watches; the one that ``hangs`` is left out and
    ended.
    """
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "4", **environment}
    ranks = {
        rank: subprocess.Popen(
            [sys.executable, str(artefact / "run.py"), "--steps", "3", *(own or {}).get(rank, [])],
            env={
                **os.environ,
                **shared,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "SHARDC_TIMEOUT_S": str(TIMEOUT_S),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    }
    codes, errors = {}, {}
    try:
        for rank, process in ranks.items():
            if rank != hangs:
                errors[rank] = process.communicate(timeout=ENDED_S)[1]
                codes[rank] = process.returncode
        return codes, errors
    finally:
        for process in ranks.values():
            process.kill()
            process.communicate()


@pytest.mark.slow
def test_launcher_names_the_dead_rank(artefact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_FAULT", "1:1")

    with pytest.raises(RankFailed, match="rank 1 was killed by SIGKILL; the other ranks were stopped"):
        run_artefact(artefact, 4, 3)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_launcher_and_its_ranks_without_a_traceback(
    artefact: Path, number: int, code: int
) -> None:
    command = [sys.executable, "-m", "shardc", "run", str(artefact), "--nproc", "4", "--steps", "1000000"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert started.stdout is not None and "step 1 " in started.stdout.readline()
    started.send_signal(number)
    _, errors = started.communicate(timeout=60)
    assert (started.returncode, errors) == (code, "")


@pytest.mark.slow
def test_survivors_name_the_dead_rank(artefact: Path) -> None:
    codes, errors = run_without_launcher(artefact, SHARDC_FAULT="2:1")
    assert codes == {0: 1, 1: 1, 2: -9, 3: 1}
    for rank in (0, 1, 3):
        assert "RankStopped: rank 2 died or hangs" in errors[rank], errors[rank][-1500:]
        assert f"at: rank {rank}, step " in errors[rank]


@pytest.mark.slow
def test_survivors_name_the_hanging_rank(artefact: Path) -> None:
    codes, errors = run_without_launcher(artefact, hangs=3, SHARDC_FAULT="3:1:stop")
    assert codes == {0: 1, 1: 1, 2: 1}
    for rank in codes:
        assert "RankStopped: rank 3 died or hangs" in errors[rank], errors[rank][-1500:]


@pytest.mark.slow
def test_survivors_repeat_the_reason_of_the_failed_rank(artefact: Path, tmp_path: Path) -> None:
    save_file({"0/x": torch.zeros(3, 6, dtype=torch.float64)}, tmp_path / "wrong.safetensors")
    codes, errors = run_without_launcher(artefact, {1: ["--batches", str(tmp_path / "wrong.safetensors")]})
    expected = "batch leaf 'x' is float64 [3, 6]; the program takes float64 [16, 6]"
    assert codes[1] == 2 and expected in errors[1]
    # a rank that dies slowly still takes part in the comparison of batches
    said = {1: f"rank 1 failed: BatchMismatch: {expected}", 2: "rank 1 refused its batch of step 0"}
    for rank in (0, 2, 3):
        assert said[codes[rank]] in errors[rank], errors[rank][-1500:]


@pytest.mark.slow
def test_wrong_number_of_ranks(artefact: Path, launch) -> None:
    with pytest.raises(MeshSizeMismatch, match=r"mesh of 4 ranks \(data 2 x tensor 2\), not for 2 processes"):
        run_artefact(artefact, 2, 1)
    done = launch(artefact / "run.py", 2)
    assert done.returncode != 0
    message = "WorldMismatch: the program is for a mesh of 4 ranks (data 2 x tensor 2), but 2 are running"
    assert message in done.stderr  # of whichever rank says it first: torchrun ends the other one


@pytest.mark.slow
def test_wrong_batch(artefact: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save_file({"0/x": torch.zeros(16, 6)}, tmp_path / "wrong.safetensors")
    with pytest.raises(RankRefused, match="exit code 2") as refused:
        run_artefact(artefact, 4, 1, {"batches": tmp_path / "wrong.safetensors"})
    assert refused.value.exit_code == 2
    output = capfd.readouterr().err
    assert "batch leaf 'x' is float32 [16, 6]; the program takes float64 [16, 6]" in output
    assert "Traceback" not in output
