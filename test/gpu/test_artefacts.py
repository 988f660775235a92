"""Artefacts of Llama's training step, made without a GPU: on one rank, as a CUDA graph, as ranks that share a
GPU, as a pipeline, and with a rank that dies.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prepared
import pytest
import torch

WORKER = Path(__file__).with_name("train_worker.py")


@dataclass(frozen=True)
class Ended:
    """A rank's process: its exit status and what it printed."""

    code: int
    output: str
    errors: str


def run(name: str, ranks: int = 1, *options: str) -> list[Ended]:
    """The ranks of ``train_worker.py`` when all have ended."""
    if not (prepared.folder() / "models" / name).is_dir():
        problem = prepared.facts()["failed"].get(name)
        assert problem is None, problem
        pytest.skip(f"{name} was left out of what was prepared (--only)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), name, *options],
            env={
                **os.environ,
                **shared,
                "RANK": str(r),
                "LOCAL_RANK": str(r),
                "LOCAL_WORLD_SIZE": str(ranks),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=150) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [Ended(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


def train(name: str, ranks: int = 1, *options: str) -> dict[str, Any]:
    """What rank 0 printed."""
    ended = run(name, ranks, *options)
    assert all(rank.code == 0 for rank in ended), "\n".join(rank.errors[-3000:] for rank in ended)
    return json.loads(ended[0].output.strip().splitlines()[-1])


def _assert_near(found: list[float], expected: list[float]) -> None:
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=2e-3, atol=2e-3)


def test_llama_trains_as_eager_does() -> None:
    said = train("llama")
    _assert_near(said["losses"], said["expected"])
    assert prepared.interprets() or said["expandable"]  # plans count memory of such segments


@pytest.mark.parametrize("name", ["llama_2_ranks", "llama_tensor"])
def test_two_ranks(name: str) -> None:
    """On one GPU they talk over Gloo; on two over NCCL, and what is small by symmetric memory where that
    fits.
    """
    said = train(name, 2)
    _assert_near(said["losses"], said["expected"])
    (line,) = said["collectives"]
    print(f"{name}: collectives of {line}; taken: {said['taken']}")
    if prepared.interprets() or torch.cuda.device_count() < 2:
        assert "by Gloo" in line and not said["taken"]
    else:
        assert ("by symmetric memory" in line) == bool(said["taken"])
        assert "by symmetric memory" in line or "by NCCL (" in line


def test_a_pipeline_of_two_ranks() -> None:
    """Activations and gradients between stages, in order of a schedule: over Gloo on one GPU, over NCCL on
    two.
    """
    said = train("llama_pipeline", 2)
    _assert_near(said["losses"], said["expected"])


def test_a_rank_that_dies_is_named() -> None:
    """By the one that waits for it, long before the time-out."""
    first, second = run("llama_2_ranks", 2, "--rank-1-dies")
    assert second.code == -signal.SIGKILL, second.errors[-3000:]
    assert first.code != 0 and "RankStopped: rank 1 died or hangs" in first.errors, first.errors[-3000:]


def test_a_cuda_graph_gives_equal_bits(gpu: torch.device) -> None:
    plain, graphed = train("llama"), train("llama", 1, "--cuda-graph")
    assert graphed["captures"] == 1
    assert graphed["losses"] == plain["losses"]
