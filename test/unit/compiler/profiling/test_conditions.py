"""Measurements of calls are kept by machine and processes."""

from __future__ import annotations

import os

import pytest
import torch

from shardc.compiler import probe
from shardc.compiler.profiling.conditions import conditions


def test_the_text_names_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_processor", lambda: "Ada 1")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = conditions(4)
    assert found.machine.startswith(f"Ada 1, {len(os.sched_getaffinity(0))} cores, ")
    assert found.machine.endswith(f" bytes, torch {torch.__version__}")
    assert (found.processes, found.threads) == (4, 3)


def test_threads_of_this_process_do_not_matter() -> None:
    threads = torch.get_num_threads()
    first = conditions(2)
    torch.set_num_threads(threads + 1)
    try:
        assert conditions(2) == first
    finally:
        torch.set_num_threads(threads)
