"""Trainings of tiny widths on long batches: losses beside one device's, and the peak memory of each process
beside the plan's.

    python test/bench/long_training.py [NAME ...]

A Mixtral of 32 experts and a Llama of ``transformers``, f32, AdamW, on four CPU processes of one thread;
each case in processes of its own, and one device trains eagerly in rank 0's. ``planned`` is the peak of
``compiler/memory.py`` and ``live`` what PyTorch's allocator and the pool count in the step after the first
two (``runtime/report/live_bytes.py``); both are over what a step is given, live the least and the most of
any rank. A case of fewer steps makes more of them for this.
``state`` is what it is given: parameters, moments, its part of the batch. ``off the losses``: the largest
difference of any step's loss, of the loss.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from launch import PROCESSES, on_processes
from machine import heading, table
from torch import nn

import shardc
from shardc.compiler.memory import step_peak
from shardc.runtime.check import Json
from shardc.runtime.kernels.library import Library
from shardc.runtime.report.live_bytes import LiveBytes
from shardc.runtime.step import TrainStep

VOCAB = 256
WARM = 2
"""Steps before the one whose memory is measured."""


def llama(length: int, layers: int = 2) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**_sizes(length, layers), intermediate_size=176))


def mixtral(length: int, layers: int = 2) -> nn.Module:
    """32 experts, two for a row; without the loss that balances them, as is the default."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        **_sizes(length, layers), intermediate_size=64, num_local_experts=32, num_experts_per_tok=2
    )
    return MixtralForCausalLM(config)


def _sizes(length: int, layers: int) -> dict[str, int | bool]:
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    sizes = {"vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": layers, **heads}
    return {**sizes, "max_position_embeddings": length, "use_cache": False}


@dataclass(frozen=True)
class Case:
    """One training: ``batch`` sequences of ``length`` tokens, the same at each of ``steps`` steps."""

    make: Callable[[int], nn.Module]
    plan: str
    batch: int
    length: int
    steps: int = 20
    capacity: float | None = None


LONG = 65536
CASES = {
    "llama, allgather": Case(llama, "allgather", 1, 8192),
    "llama, ring": Case(llama, "ring", 1, 8192),
    "llama, ulysses": Case(llama, "ulysses", 1, 8192),
    "mixtral, expert": Case(mixtral, "expert", 4, 2048),
    "mixtral, expert, capacity 2": Case(mixtral, "expert", 4, 2048, capacity=2.0),
    "llama, ring, 64k": Case(partial(llama, layers=1), "ring", 1, LONG, steps=2),
    "llama, ulysses, 64k": Case(partial(llama, layers=1), "ulysses", 1, LONG, steps=2),
    "mixtral, expert, capacity 2, 64k": Case(
        partial(mixtral, layers=1), "expert", 16, LONG // 16, steps=2, capacity=2.0
    ),
}


def eager_losses(case: Case, model: nn.Module, ids: torch.Tensor) -> list[float]:
    """Those of one device."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), list[float]()
    for _ in range(case.steps):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def train(running: TrainStep, batch: dict[str, torch.Tensor], steps: int) -> tuple[list[float], int]:
    """Losses of ``steps`` steps, and the most bytes that live in the third, over what it is given."""
    values, live, losses = running.leaves(batch), LiveBytes(), list[float]()
    for number in range(max(steps, WARM + 1)):
        if number == WARM - 1:
            live.start()
        made = running.live_leaves(values, live) if number == WARM else running.step_leaves(values)
        assert isinstance(made, torch.Tensor)
        losses.append(made.item())
    return losses[:steps], live.peak_bytes


def work(name: str, into: Path) -> None:
    """What each of the four processes does."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    case = CASES[name]
    model = case.make(case.length)
    ids = torch.randint(VOCAB, (case.batch, case.length))
    batch = {"input_ids": ids, "labels": ids}
    single = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    mesh = {"expert" if case.plan == "expert" else "context": PROCESSES}
    step = shardc.compile_step(
        model, optimizer, batch, mesh=mesh, plan=case.plan, expert_capacity=case.capacity
    )
    library = step.compiled.library
    peak = step_peak(step.compiled.program, None if library is None else Library(library), in_calls=True)
    started = time.perf_counter()
    losses, live = train(step.running, batch, case.steps)
    seconds = (time.perf_counter() - started) / max(case.steps, WARM + 1)
    lives = [torch.zeros(1, dtype=torch.int64) for _ in range(PROCESSES)]
    dist.all_gather(lives, torch.tensor([live]))
    if dist.get_rank() == 0:
        found = {
            "planned": peak.size_bytes - peak.given_bytes - peak.kept_bytes,
            "live": [each.item() for each in lives],
            "state": step.running.given_bytes,
            "losses": losses,
            "single": eager_losses(case, single, ids),
            "seconds": seconds,
            "line": peak.line,
        }
        into.write_text(json.dumps(found))


def measured(name: str) -> Json:
    """One case, in processes of its own."""
    with TemporaryDirectory() as folder:
        into = Path(folder) / "found.json"
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--one", name, "--into", str(into)]
        subprocess.run(command, check=True, env=environment)
        return json.loads(into.read_text())


def row(name: str, found: Json) -> list[object]:
    planned, live, state = found["planned"], found["live"], found["state"]
    off = [100 * (planned / each - 1) for each in live]
    apart = max(abs(a / b - 1) for a, b in zip(found["losses"], found["single"], strict=True))
    sizes = [planned / 1e6, min(live) / 1e6, max(live) / 1e6]
    worst = f"{max(off, key=abs):+.1f}%"
    losses = [f"{found['losses'][0]:.4f}", f"{found['losses'][-1]:.4f}", f"{apart:.0e}"]
    return [name, len(found["losses"]), *losses, state / 1e6, *sizes, worst, found["seconds"]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="of cases; all without")
    parser.add_argument("--one", choices=tuple(CASES))
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    if options.one is not None:
        on_processes(partial(work, options.one, options.into))
    rows = []
    for name in options.names or CASES:
        rows.append(row(name, measured(name)))
        print(*rows[-1], file=sys.stderr, flush=True)
    memory = ["state MB", "planned MB", "live MB: least", "most", "off"]
    losses = ["first loss", "last", "off the losses"]
    print(heading("Trainings on long batches, four processes"))
    print(table(["training", "steps", *losses, *memory, "s a step"], rows))


if __name__ == "__main__":
    main()
