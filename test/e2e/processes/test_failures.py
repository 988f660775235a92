"""A rank that dies, hangs, or fails: the others stop within the time-out, and every message names it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from shardc.diagnostics.runtime import MeshSizeMismatch, RankFailed
from shardc.driver.run import run_artefact

pytestmark = pytest.mark.processes

TIMEOUT_S = 10


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_without_launcher(
    artefact: Path, own: dict[int, list[str]] | None = None, **environment: str
) -> tuple[list[int | None], list[str], float]:
    """Exit codes, error outputs and seconds of four ranks that nobody watches; one that never ends gives None."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "4", **environment}
    started_s = time.monotonic()
    ranks = [
        subprocess.Popen(
            [sys.executable, str(artefact / "run.py"), "--steps", "3", *(own or {}).get(rank, [])],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "SHARDC_TIMEOUT_S": str(TIMEOUT_S)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    codes: list[int | None] = []
    errors = []
    try:
        for rank in ranks:
            try:
                errors.append(rank.communicate(timeout=max(1.0, 60 - (time.monotonic() - started_s)))[1])
                codes.append(rank.returncode)
            except subprocess.TimeoutExpired:
                codes.append(None)
                errors.append("")
        return codes, errors, time.monotonic() - started_s
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_launcher_names_the_dead_rank(artefact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_FAULT", "1:1")
    started_s = time.monotonic()
    with pytest.raises(RankFailed, match="rank 1 was killed by SIGKILL; the other ranks were stopped"):
        run_artefact(artefact, 4, 3)
    assert time.monotonic() - started_s < 60


def test_survivors_name_the_dead_rank(artefact: Path) -> None:
    codes, errors, _ = run_without_launcher(artefact, SHARDC_FAULT="2:1")
    assert codes[2] == -9
    for rank in (0, 1, 3):
        assert codes[rank] == 2, errors[rank]
        assert "RankStopped: rank 2 died or hangs" in errors[rank], errors[rank][-1500:]
        assert f"at: rank {rank}, step 1" in errors[rank]


def test_survivors_name_the_hanging_rank(artefact: Path) -> None:
    # Rank 2 hangs for good; communicate() would wait for it, so only the others are looked at.
    codes, errors, seconds = run_without_launcher(artefact, SHARDC_FAULT="3:1:stop")
    assert codes[3] is None
    for rank in (0, 1, 2):
        assert codes[rank] == 2, errors[rank]
        assert "RankStopped: rank 3 died or hangs" in errors[rank], errors[rank][-1500:]
    assert seconds < 62


def test_survivors_repeat_the_reason_of_the_failed_rank(artefact: Path, tmp_path: Path) -> None:
    save_file({"0/x": torch.zeros(3, 6, dtype=torch.float64)}, tmp_path / "wrong.safetensors")
    codes, errors, _ = run_without_launcher(artefact, {1: ["--batches", str(tmp_path / "wrong.safetensors")]})
    expected = "batch leaf 'x' is float64 [3, 6]; the program takes float64 [16, 6]"
    assert codes == [2, 2, 2, 2]
    assert expected in errors[1]
    for rank in (0, 2, 3):
        assert f"rank 1 failed: BatchMismatch: {expected}" in errors[rank], errors[rank][-1500:]


def test_wrong_number_of_ranks(artefact: Path, launch) -> None:
    with pytest.raises(MeshSizeMismatch, match=r"mesh of 4 ranks \(data 2 x tensor 2\), not for 2 processes"):
        run_artefact(artefact, 2, 1)
    done = launch(artefact / "run.py", 2)
    assert done.returncode != 0
    assert "the program is for a mesh of 4 ranks (data 2 x tensor 2), but 2 are running" in done.stderr
    assert "Traceback" not in done.stderr.split("torch/distributed/run.py")[0]
