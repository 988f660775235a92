"""Measures on a GPU what `prepare.py --bench` made, and writes a dated table in Markdown.

    python test/bench/gpu/run.py out/gpu [--out table.md] [--only matmul,copy,flash,inductor,whole_llama]
    [--minutes 9]

Needs torch and Triton; Inductor, as part of torch, is what whole models are held against. Times are medians
of CUDA events, contenders take turns, and their ratios are of one run. What is faster has the ratio above 1.
Every result is compared with the contender's before it is measured. What fails has a row that says why, as
has what there is no time for. After an error of the device, which lasts for as long as its process, another
process measures the rest.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measured
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.append(str(Path(__file__).parents[2] / "gpu"))

import models
import prepared

from shardc.runtime import TrainStep

ROUNDS, CALLS = 7, 10
LOST = ("CUDA error", "Triton Error [CUDA]")
"""What errors say after which a process can do nothing more on its GPU."""
Call = Callable[[], Any]
Row = tuple[str, ...]


class DeviceLost(Exception):
    """This process's GPU, while it measured what is named."""


class Timer:
    """Milliseconds on a GPU; in Triton's interpreter of the host, where they say nothing and
    prove the path.
    """

    def __init__(self, minutes: float) -> None:
        self._is_real, self.end_s = not prepared.interprets(), time.monotonic() + 60 * minutes
        self._wipe = (
            torch.empty(256 << 20, dtype=torch.int8, device="cuda") if self._is_real else torch.empty(1)
        )

    def is_over(self) -> bool:
        """Whether nothing more is to be begun."""
        return time.monotonic() > self.end_s

    def once(self, call: Call, calls: int) -> float:
        if not self._is_real:
            started = time.perf_counter()
            call()
            return (time.perf_counter() - started) * 1e3
        total = []
        for _ in range(calls):
            self._wipe.zero_()  # what is in L2 goes
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            call()
            last.record()
            total.append((first, last))
        torch.cuda.synchronize()
        return statistics.median(a.elapsed_time(b) for a, b in total)

    def compare(self, *calls: Call) -> list[float]:
        """The median over rounds for each of the calls, which take turns in being first."""
        found: list[list[float]] = [[] for _ in calls]
        for call in calls:
            call()
        for turn in range(ROUNDS if self._is_real else 1):
            for n in range(len(calls)):
                number = (n + turn) % len(calls)
                found[number].append(self.once(calls[number], CALLS))
        return [statistics.median(of) for of in found]


def _bytes(*groups: Any) -> int:
    return sum(x.numel() * x.element_size() for group in groups for x in group)


def copy_bytes_s(timer: Timer) -> float:
    """What a copy on the device moves, bytes read and written together."""
    count = (4 << 30) if not prepared.interprets() else 1 << 12
    x, y = (torch.empty(count, dtype=torch.int8, device=prepared.device()) for _ in range(2))
    (found,) = timer.compare(lambda: y.copy_(x))
    return 2 * count / found * 1e3


def _same(found: Any, expected: Any, bound: float) -> None:
    for a, b in zip(found, expected, strict=True):
        scale = max(1.0, b.abs().max().item())
        torch.testing.assert_close(a.float(), b.float(), rtol=bound, atol=bound * scale)


def kernel_rows(timer: Timer, wanted: list[str], done: list[str]) -> Iterator[Row]:
    """Raises DeviceLost."""
    copied = copy_bytes_s(timer)
    yield "copy", "", f"{copied / 1e12:.2f} TB/s", "", "", ""
    for name, case in measured.cases().items():
        kind, path = name.partition("_")[0], prepared.folder() / "bench" / name
        if name in done or not {kind, name} & {*wanted} or not (path / "program.py").is_file():
            continue
        if timer.is_over():
            yield name, "out of time", "", "", "", ""
            continue
        try:
            yield kernel_row(timer, name, kind, case, path, copied)
        except Exception as error:  # the others are to be measured all the same
            yield name, "failed", _said(error), "", "", ""
            if _is_lost(error):
                raise DeviceLost(name) from error
        gc.collect()
        if not prepared.interprets():
            torch.cuda.empty_cache()


def kernel_row(timer: Timer, name: str, kind: str, case: Any, path: Path, copied: float) -> Row:
    run, _ = prepared.program(path)
    inputs = case.inputs(prepared.device())
    ours: Call = lambda: run(inputs)  # noqa: E731
    other, label = contender(kind, name, case, inputs)
    if name != "inductor_dropout_add_norm":  # which draws other numbers
        _same(ours(), other(), max(case.tolerance(), 2.0**-5))
    own_ms, other_ms = timer.compare(ours, other)
    wanted = {"matmul": "0.85", "flash": "0.80", "inductor": "1.30", "copy": "1.00"}[kind]
    if name in ("matmul_4096x4096x4096", "matmul_8192x8192x8192"):
        wanted = "0.95"
    rate = ""
    if kind == "matmul":
        m, n, k = (int(part) for part in name.partition("_")[2].split("x"))
        rate = f"{2 * m * n * k / own_ms / 1e9:.0f} TFLOP/s"
    if kind == "copy":
        moved_s = _bytes(inputs, ours()) / own_ms * 1e3
        rate = f"{moved_s / 1e12:.2f} TB/s, {moved_s / copied:.2f} of the copy"
    return name, f"{own_ms:.3f} ms", rate, f"{label} {other_ms:.3f} ms", f"{other_ms / own_ms:.2f}", wanted


def contender(kind: str, name: str, case: Any, inputs: list[torch.Tensor]) -> tuple[Call, str]:
    """What a case is held against, giving a list of the same results."""
    if kind == "matmul":
        return lambda: case.results(*inputs), "cuBLAS"
    if kind in ("inductor", "copy"):
        function = dropout_of_torch if name == "inductor_dropout_add_norm" else case.results
        torch.compiler.reset()  # all cases are of one function, of which it compiles a few
        compiled = torch.compile(function, dynamic=False) if not prepared.interprets() else function
        return lambda: compiled(*inputs), "torch.compile"
    q, k, v = (x.detach().clone().requires_grad_() for x in inputs[-3:])

    def attend() -> torch.Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # one serves one block
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
            )

    if name.startswith("flash_forward"):
        q, k, v = (x.detach() for x in (q, k, v))
        return lambda: [attend()], "flash SDPA"
    # Ours computes the forward too, as the backward's input: so does this.
    return lambda: list(torch.autograd.grad(attend(), (q, k, v), inputs[0])), "flash SDPA"


def dropout_of_torch(x: Any, residual: Any, w: Any, b: Any) -> list[torch.Tensor]:
    y = residual + F.dropout(x, 0.1)
    return [y, F.layer_norm(y, list(w.shape), w, b)]


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".replace("|", "/")


def _is_lost(error: Exception) -> bool:
    return any(sign in _said(error) for sign in LOST)


def model_rows(timer: Timer, wanted: list[str], done: list[str], mode: str) -> Iterator[Row]:
    """Raises DeviceLost."""
    facts = prepared.facts()
    for kind, size in (models.TINY if facts["tiny"] else models.SIZES).items():
        path = prepared.folder() / "whole" / kind
        if f"whole_{kind}" in done or not path.is_dir() or not {"whole", f"whole_{kind}"} & {*wanted}:
            continue
        if timer.is_over():
            yield f"whole {kind}", "out of time", "", "", "", ""
            continue
        try:
            compile_s = facts["seconds"].get(f"whole_{kind}", math.nan)
            yield from model_row(timer, kind, size, path, compile_s, mode)
        except Exception as error:  # the other models are to be measured all the same
            yield f"whole {kind}", "failed", _said(error), "", "", ""
            if _is_lost(error):
                raise DeviceLost(f"whole_{kind}") from error
        gc.collect()
        if not prepared.interprets():
            torch.cuda.empty_cache()


def model_row(
    timer: Timer, kind: str, size: models.Size, path: Path, compile_s: float, mode: str
) -> Iterator[Row]:
    device, is_real = prepared.device(), not prepared.interprets()
    torch.manual_seed(0)
    model = models.build(kind, size).bfloat16()
    batch = {n: v.bfloat16() if v.is_floating_point() else v for n, v in models.batch(kind, size).items()}
    before = _reserved_bytes()
    step = TrainStep.load(path, device=device, state=dict(model.state_dict()))
    batch = {n: v.to(device) for n, v in batch.items()}
    first = step(batch).item()
    if is_real:
        step.use_cuda_graph()
    for _ in range(3):
        step(batch)
    ours_bytes = _reserved_bytes() - before
    (alone_ms,) = timer.compare(lambda: step(batch))
    yield (
        f"whole {kind}, by itself",
        f"{alone_ms:.2f} ms",
        "",
        "",
        "",
        "",
    )  # Inductor may take all the time there is
    before = _reserved_bytes()
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=is_real)
    compiled = torch.compile(model, mode=mode) if is_real else model

    def theirs() -> torch.Tensor:
        optimizer.zero_grad()
        loss = compiled(**batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    started = time.perf_counter()
    torch.testing.assert_close(first, theirs().item(), rtol=3e-2, atol=3e-2)
    their_compile_s = time.perf_counter() - started
    for _ in range(3):
        theirs()
    their_bytes = _reserved_bytes() - before
    ours_ms, their_ms = timer.compare(lambda: step(batch), theirs)
    other = f"{mode} {their_ms:.2f} ms"
    yield f"whole {kind}", f"{ours_ms:.2f} ms", "", other, f"{their_ms / ours_ms:.2f}", "1.00"
    yield (
        f"whole {kind}, compilation",
        f"{compile_s:.0f} s (another machine)",
        "",
        f"{mode} {their_compile_s:.0f} s",
        f"{their_compile_s / compile_s:.2f}",
        "2.00",
    )
    yield (
        f"whole {kind}, memory",
        f"{ours_bytes / 2**30:.2f} GiB",
        "",
        f"{mode} {their_bytes / 2**30:.2f} GiB",
        f"{their_bytes / max(1, ours_bytes):.2f}",
        "1.00",
    )


def _reserved_bytes() -> int:
    """What the process holds of the device, with the memory of graphs."""
    if prepared.interprets():
        return 0
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("gpu-benchmark.md"))
    parser.add_argument("--only", default="matmul,copy,flash,inductor,whole")
    parser.add_argument("--minutes", type=float, default=9, help="after which nothing more is begun")
    parser.add_argument("--mode", default="max-autotune", help="of torch.compile, for whole models")
    parser.add_argument("--done", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ[prepared.FOLDER] = str(options.folder.resolve())
    if not prepared.interprets() and not torch.cuda.is_available():
        raise SystemExit(f"no GPU: torch {torch.__version__} sees none")
    wanted, timer = options.only.split(","), Timer(options.minutes)
    name = (
        torch.cuda.get_device_name() if not prepared.interprets() else "Triton's interpreter (no measurement)"
    )
    done = options.done.split(",") if options.done else []
    with options.out.open("a" if done else "w") as file:

        def line(text: str) -> None:
            print(text, flush=True)
            file.write(text + "\n")
            file.flush()

        line(f"# {name}, {datetime.date.today().isoformat()}\n")
        facts = prepared.facts()
        line(f"torch {torch.__version__}, prepared with {facts['made_with']} for {facts['target']}.\n")
        line(
            "| what | ours | rate | against | ratio (above 1: ours is faster) | wanted "
            "|\n|---|--:|--:|--:|--:|--:|"
        )
        try:
            for row in itertools.chain(
                kernel_rows(timer, wanted, done), model_rows(timer, wanted, done, options.mode)
            ):
                line("| " + " | ".join(row) + " |")
            return
        except DeviceLost as lost:
            every = [*measured.cases(), *(f"whole_{kind}" for kind in models.SIZES)]
            done = every[: every.index(str(lost)) + 1]
    minutes = (timer.end_s - time.monotonic()) / 60
    rest = {
        "out": options.out,
        "mode": options.mode,
        "only": options.only,
        "minutes": minutes,
        "done": ",".join(done),
    }
    more = [f"--{name}={value}" for name, value in rest.items()]
    os.execv(sys.executable, [sys.executable, __file__, str(options.folder), *more])


if __name__ == "__main__":
    main()
