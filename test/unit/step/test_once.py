"""Steps that are compiled once: by one of several processes, and by the first of several launches."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

import shardc
from shardc.cache import disk, lock
from shardc.cost.cluster.names import READY
from shardc.diagnostics.base import Remark
from shardc.step import once
from shardc.step.compile_step import CompiledStep


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own, in which steps are kept."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(folder))
    monkeypatch.setenv("SHARDC_STEP_CACHE", "1")
    monkeypatch.setattr(once, "added", set())  # other tests of this process add rules: no step is kept then
    yield folder


def compiled(width: int = 16, scale: float = 1.0, **options: object) -> CompiledStep:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.Linear(width, 4))
    batch = {"input": torch.randn(4, 8)}
    chosen: dict[str, object] = {"mesh": {"data": 2, "tensor": 2}, "plan": "zero3*tensor", **options}
    optimizer = torch.optim.AdamW(model.parameters())
    return shardc.compile_step(
        model, optimizer, batch, loss=lambda out, _: out.square().mean() * scale, **chosen
    )


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("step-*.zlib"))


def test_a_second_compile_is_loaded_and_is_the_same_step(cache: Path, tmp_path: Path) -> None:
    first, second = compiled(), compiled()
    assert len(entries(cache)) == 1
    assert once.LOADED not in first.compiled.seconds and once.LOADED in second.compiled.seconds
    assert once.LOADED in str(second.plan)
    assert dict(first.compiled.levels) == dict(second.compiled.levels)
    assert first.compiled.program_text == second.compiled.program_text
    assert json.dumps(first.compiled.plan_json) == json.dumps(second.compiled.plan_json)
    assert first.compiled.library == second.compiled.library is not None
    written = [_files_of(step, tmp_path / name) for step, name in ((first, "a"), (second, "b"))]
    assert written[0] == written[1]


def _files_of(step: CompiledStep, folder: Path) -> dict[str, bytes]:
    """The artefact; the README and ``run.py`` name its folder."""
    step.save(folder)
    whole = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {n: p.read_bytes() for n, p in whole.items() if n not in ("README", "run.py", "shardc.json")}


def test_a_loaded_step_is_proved_equal() -> None:
    compiled()
    loaded = compiled()
    assert once.LOADED in loaded.compiled.seconds
    assert loaded.check().passed


def test_a_loaded_step_trains_as_the_compiled_one() -> None:
    steps, losses = [], []
    for _ in range(2):
        steps.append(compiled(mesh={"data": 1}, plan="data"))
        losses.append([float(steps[-1]({"input": torch.ones(4, 8)})) for _ in range(3)])
    assert [once.LOADED in step.compiled.seconds for step in steps] == [False, True]
    assert losses[0] == losses[1] and losses[0][0] != losses[0][2]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "other",
    [
        {"width": 32},
        {"scale": 0.5},
        {"plan": "data*tensor"},
        {"plan": {"*.weight": ["data", None]}},
        {"mesh": {"data": 4, "tensor": 1}},
        {"micro_batches": 2},
        {"fuse": False},
        {"rounding": "eager"},
        {"matmuls": "extern"},
        {"clip_grad_norm": 1.0},
        {"autocast": torch.bfloat16},
        {"cluster": "h100-2x2"},
    ],
    ids=str,
)
def test_another_program_or_option_is_compiled(other: dict[str, object], cache: Path) -> None:
    compiled()
    step = compiled(**other)  # pyright: ignore[reportArgumentType]
    assert once.LOADED not in step.compiled.seconds
    assert len(entries(cache)) == 2


@pytest.mark.slow
def test_a_saved_plan_counts_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    compiled(plan="zero3*tensor").save_plan(file)
    assert once.LOADED not in compiled(plan=str(file)).compiled.seconds
    assert once.LOADED in compiled(plan=str(file)).compiled.seconds
    compiled(plan="data*tensor").save_plan(file)
    assert once.LOADED not in compiled(plan=str(file)).compiled.seconds


@pytest.mark.slow
def test_a_step_is_of_its_cluster_and_a_saved_plan_names_it(tmp_path: Path) -> None:
    """A file counts by its content; a saved plan brings the cluster along."""
    pair, file = tmp_path / "pair.yaml", tmp_path / "plan.json"
    text = (READY / "h100.yaml").read_text().replace("ways: 8", "ways: 4")
    pair.write_text(text)
    assert once.LOADED not in compiled(cluster=pair).compiled.seconds
    assert once.LOADED in compiled(cluster=str(pair)).compiled.seconds
    pair.write_text(text.replace("bandwidth_bytes_s: 450e9", "bandwidth_bytes_s: 449e9"))
    assert once.LOADED not in compiled(cluster=pair).compiled.seconds
    step = compiled(cluster="h100-2x2")
    step.save_plan(file)
    assert json.loads(file.read_text())["cluster"] == "h100-2x2"
    again = compiled(plan=str(file))
    assert again.compiled.plan_json["cluster"] == "h100-2x2"
    assert again.compiled.program_text == step.compiled.program_text


def test_remarks_are_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Remark("Odd", "an op is odd", "model.py:3")
    compile_capture = once.compile_capture

    def remarking(*args: object, **kwargs: object) -> object:
        found = compile_capture(*args, **kwargs)  # pyright: ignore[reportArgumentType]
        found.remarks.append(said)
        return found

    monkeypatch.setattr(once, "compile_capture", remarking)
    compiled()
    loaded = compiled()
    assert once.LOADED in loaded.compiled.seconds
    assert said in loaded.compiled.remarks and "[Odd] an op is odd (at model.py:3)" in str(loaded.plan)


def test_a_step_without_all_of_its_kernels_is_not_kept(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(once, "fuse_step", lambda *_: False)
    compiled()
    assert not entries(cache)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("damage", ["cut", "no JSON", "kernels gone"])
def test_what_is_of_no_use_is_compiled_again(damage: str, cache: Path) -> None:
    first = compiled()
    (name,) = entries(cache)
    if damage == "cut":
        (cache / name).write_bytes((cache / name).read_bytes()[:-40])
    elif damage == "no JSON":
        disk.keep(name, b"nothing of ours")
    else:
        assert first.compiled.library is not None
        first.compiled.library.unlink()
    again = compiled()
    assert once.LOADED not in again.compiled.seconds
    assert again.compiled.library is not None and again.compiled.library.is_file()
    assert once.LOADED in compiled().compiled.seconds


def test_the_variable_turns_it_off(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("SHARDC_STEP_CACHE", "0")
    compiled()
    assert once.LOADED not in compiled().compiled.seconds and not entries(cache)


HOLDER = """
import os, sys, time
from shardc.cache import disk
with disk.alone(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def test_who_waits_says_for_whom_and_goes_on_when_that_process_dies(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lock, "PATIENCE_S", 0.05)
    name = f"step-{'0' * 32}.zlib"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, name], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"

    def wait() -> str:
        with disk.alone(name):
            return "mine"

    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        while not caplog.messages:
            time.sleep(0.02)
        assert not waiting.done()
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert waiting.result(timeout=60) == "mine"
    assert f"rank 0 waits for rank 0, process {holder.pid}, which makes {name}" in caplog.messages


def test_a_lock_is_the_kernels_own(cache: Path) -> None:
    """A file that a dead process left locks nobody out."""
    name = f"step-{'1' * 32}.zlib"
    cache.mkdir(parents=True, mode=0o700)
    (cache / f"{name}.lock").write_text("rank 3, process 1")
    with disk.alone(name), (cache / f"{name}.lock").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not (cache / f"{name}.lock").exists()
