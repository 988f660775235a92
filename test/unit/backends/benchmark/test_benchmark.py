"""Candidates, their benchmark, and the record of choices."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from shardc.backends.benchmark import benchmark
from shardc.backends.benchmark.benchmark import Candidate, choose, measure
from shardc.backends.cpu.contractions import candidates, measured_form
from shardc.cache import disk as cache
from shardc.cache import place
from shardc.diagnostics.kernels import KernelCacheWarning
from shardc.passes.extern.contraction import ADD, Contraction, forms, onednn_takes
from shardc.runtime.kernels import pool


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(place, "_said", set())
    return tmp_path / "cache"


def working(name: str, calls: list[str], seconds: float, version: str = "") -> Candidate:
    def call() -> None:
        calls.append(name)
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    return Candidate(name, lambda: call, version)


def failing(name: str, when_built: bool) -> Candidate:
    def fail() -> Callable[[], object]:
        raise RuntimeError("not here")

    return Candidate(name, fail if when_built else lambda: fail)


def test_the_fastest_wins_and_later_processes_measure_nothing() -> None:
    calls: list[str] = []
    contenders = [working("slow", calls, 2e-3), working("fast", calls, 1e-4)]
    assert choose("a", contenders) == "fast"
    assert calls.count("slow") == calls.count("fast") == 1 + benchmark.ROUNDS[0] or calls.count("slow") > 4
    calls.clear()
    assert choose("a", contenders) == "fast" and not calls


def test_long_calls_take_half_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "LONG_S", 1e-3)
    calls: list[str] = []
    assert choose("a", [working("slow", calls, 2e-3), working("fast", calls, 1e-4)]) == "fast"
    assert calls.count("slow") == calls.count("fast") == 1 + benchmark.ROUNDS[0] // 2


@pytest.mark.parametrize("changed", ["subject", "candidates", "version", "threads"])
def test_what_changes_is_measured_anew(changed: str) -> None:
    calls: list[str] = []
    choose("a", [working("one", calls, 0), working("two", calls, 0)])
    calls.clear()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + (changed == "threads"))
        others = [working("one", calls, 0), working("two", calls, 0, "2" if changed == "version" else "")]
        choose(
            "b" if changed == "subject" else "a",
            others + [working("three", calls, 0)] * (changed == "candidates"),
        )
    finally:
        torch.set_num_threads(threads)
    assert calls


def test_the_first_stays_within_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, winner in ((0.99, "first"), (0.9, "second")):
        monkeypatch.setattr(benchmark, "measure", lambda *_, s=seconds: {"first": 1.0, "second": s})
        assert choose(f"{seconds}", [working("first", [], 0), working("second", [], 0)]) == winner


def test_candidates_that_fail_are_out() -> None:
    calls: list[str] = []
    others = [failing("unbuilt", True), failing("uncalled", False)]
    assert list(measure([*others, working("works", calls, 0)])) == ["works"]
    assert choose("a", [*others, working("works", calls, 0)]) == "works"
    assert choose("b", others) == "unbuilt"


def test_a_damaged_record_is_measured_again(folder: Path) -> None:
    calls: list[str] = []
    contenders = [working("slow", calls, 2e-3), working("fast", calls, 1e-4)]
    choose("a", contenders)
    (file,) = folder.glob("choice-*")
    file.write_bytes(file.read_bytes()[:-5])
    calls.clear()
    assert choose("a", contenders) == "fast" and calls
    calls.clear()
    assert choose("a", contenders) == "fast" and not calls


def test_a_folder_that_cannot_be_written_is_said_once(folder: Path) -> None:
    cache._own.clear()
    folder.write_text("a file stands in its place")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for subject in "aab":
            assert choose(subject, [working("slow", [], 2e-3), working("fast", [], 1e-4)]) == "fast"
    assert [w.category for w in caught] == [KernelCacheWarning]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("epilogue", ["", "aten.gelu", "aten.silu", ADD])
def test_every_form_of_a_contraction_is_built(dtype: torch.dtype, epilogue: str) -> None:
    """And all give one result; what is made for them touches no state of random numbers."""
    before = torch.get_rng_state()
    contraction = Contraction(
        5, 8, 7, dtype, True, False, True, epilogue, "none" if epilogue == "aten.gelu" else ""
    )
    made = [candidate.build()() for candidate in candidates(contraction)]
    more = (2 if epilogue else 1) if onednn_takes(dtype) else 0
    assert len(made) == len(forms(contraction)) == 1 + more
    for found in made[1:]:
        torch.testing.assert_close(found, made[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_large_products_of_aten_are_measured_in_the_pool() -> None:
    before = pool.statistics()["used_bytes"]
    made = [
        candidate.build()() for candidate in candidates(Contraction(256, 8, 256, torch.float32, True, True))
    ]
    assert pool.statistics()["used_bytes"] - before == 256 * 256 * 4
    torch.testing.assert_close(made[1], made[0])


def test_small_matmuls_are_not_measured(folder: Path) -> None:
    assert measured_form(Contraction(64, 64, 64, torch.float32, True, True)) == "aten" and not folder.exists()
