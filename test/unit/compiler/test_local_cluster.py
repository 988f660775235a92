"""This machine is measured once, and all processes have the same figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shardc.compiler import local_cluster, probe
from shardc.compiler.local_cluster import cluster_of
from shardc.cost.cluster.local import Figures
from shardc.cost.cluster.names import READY
from shardc.diagnostics.cluster import ProbeFailed

FIGURES = Figures(8e9, 1e11, 1e11, 1e10, 1e-6, 5e-5, 2e-4, 1e9)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    local_cluster.figures.cache_clear()


def test_it_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([FIGURES, replace(FIGURES, message_s=1.0)])
    monkeypatch.setattr(local_cluster, "measure", lambda: next(taken))
    first = cluster_of("local-2")
    local_cluster.figures.cache_clear()  # as another process has it
    assert cluster_of("local-2") == first
    assert cluster_of("local-4").devices[0].memory_bytes == 2e9
    monkeypatch.setattr(local_cluster, "conditions", lambda: ("another",))
    local_cluster.figures.cache_clear()
    assert cluster_of("local-2") != first


def test_names_and_files_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_cluster, "measure", lambda: pytest.fail("measured"))
    assert cluster_of("h100-8x2").size == 16
    assert cluster_of(READY / "h100.yaml") == cluster_of("h100")


def test_two_processes_that_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe.sys, "executable", "/bin/false")
    with pytest.raises(ProbeFailed, match="could not measure messages between them: no word"):
        probe.measure()


def test_all_cores_are_measured_for_processes_of_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = {"message_s": 1.0, "collective_s": 1.0, "sent_bytes_s": 1.0}
    monkeypatch.setattr(probe, "_messages", lambda processes: messages)
    monkeypatch.setattr(probe, "_product_flop_s", lambda dtype: float(torch.get_num_threads()))
    monkeypatch.setattr(probe.os, "sched_getaffinity", lambda process: {0, 1, 2})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = probe.measure()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    assert (found.f32_flop_s, found.all_f32_flop_s, found.cores) == (1.0, 3.0, 3.0)


@pytest.mark.processes
@pytest.mark.slow
def test_the_figures_are_those_of_a_machine() -> None:
    found = probe.measure()
    assert found.memory_bytes > 1e8 and 1e8 < found.f32_flop_s < 1e15
    assert 1e8 < found.memory_bytes_s < 1e13 and 1e6 < found.sent_bytes_s < found.memory_bytes_s
    assert 1e-8 < found.launch_s < 1e-2
    assert 1e-7 < found.message_s < 1.0 and 1e-7 < found.collective_s < 1.0
    assert found.cores >= 1 and 1e-7 < found.crowded_s < 1.0


def test_measuring_draws_none_of_the_users_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "ROWS", 8)
    monkeypatch.setattr(probe, "COPIED", (8, 8))
    monkeypatch.setattr(probe, "_messages", lambda processes: {})
    monkeypatch.setattr(probe, "Figures", dict)
    before = torch.random.get_rng_state()
    probe.measure()
    assert torch.equal(torch.random.get_rng_state(), before)
