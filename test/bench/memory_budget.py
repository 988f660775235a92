"""Measured peaks of steps under ``memory_budget=``, against PyTorch's ``activation_memory_budget``.

    python test/bench/memory_budget.py [--budgets N] [NAME ...]

Each model runs in a process of its own, on one device, in one thread, without kernels of ours: on both sides
ATen's. Budgets lie evenly between shardc's least peak and the one that keeps all; PyTorch's knob, which is a
part of what activations take, evenly from 0 to 1. There ``torch.compile`` runs the partitioner that the knob
belongs to without Inductor's code (``aot_eager_decomp_partition``). ``measured`` are the bytes of PyTorch's
allocator in the third step, over those before it (``torch.profiler``, as ``runtime/report/live_bytes.py``
reads it), forward, backward and AdamW. A step down is a budget whose measured peak is below that of a lower
budget, by more than a kilobyte.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from machine import heading, table
from peak_cpu import Regression, Residual, Subject, language, mlp, regression
from torch import nn

from shardc.artefact.manifest import fields_of, manifest_of
from shardc.compiler.memory import step_peak
from shardc.diagnostics.passes.recompute import BudgetTooSmall
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.spec import Capture
from shardc.passes.manager.program import copy_module
from shardc.runtime.program import Program
from shardc.runtime.report.live_bytes import LiveBytes
from shardc.runtime.step import TrainStep
from shardc.step.modules.recomputed import repeated_layers
from shardc.step.shard import Compiled, capture_choices, compile_capture
from shardc.step.sharding.mesh import make_mesh
from shardc.step.within_budget import Ladder, Made

BUDGETS = 20
ONE = {"data": 1}
NOISE_BYTES = 1000


def wide_mlp() -> Subject:
    return regression(Regression(mlp(nn.GELU(), 256, 6)), torch.randn(4096, 256), torch.randn(4096, 256))


def llama() -> Subject:
    sizes = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2, "vocab_size": 1024}
    return language("Llama", 8, 128, num_attention_heads=4, num_key_value_heads=4, **sizes)


def gpt2() -> Subject:
    return language("GPT2", 8, 128, n_embd=128, n_layer=2, n_head=4, vocab_size=1024, n_positions=128)


def resnet() -> Subject:
    body = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *(Residual(32) for _ in range(3)))
    return regression(Regression(body), torch.randn(8, 3, 32, 32), torch.randn(8, 32, 32, 32))


def bert() -> Subject:
    from transformers import BertConfig, BertForMaskedLM

    sizes = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids = torch.randint(1024, (8, 128))
    model = BertForMaskedLM(BertConfig(vocab_size=1024, **sizes))
    return model, {"input_ids": ids, "labels": ids}, None


MODELS: dict[str, Callable[[], Subject]] = {f.__name__: f for f in (wide_mlp, llama, gpt2, resnet, bert)}


class Rungs:
    """The rungs of a model, captured once."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        model, self._batch, loss = MODELS[name]()
        noted, self._optimizer = tuple(repeated_layers(model)), torch.optim.AdamW(model.parameters())
        self._captured = capture_step(
            model, self._optimizer, self._batch, loss=loss, context=new_context(), noted=noted
        )
        self._level1 = self._captured.module.operation.get_asm(assume_verified=True)
        self._mesh = make_mesh(ONE)
        self.ladder = Ladder(self._make, lambda: capture_choices(self._copy(), self._mesh, "data"))

    def _copy(self) -> Capture:
        return replace(self._captured, module=copy_module(self._captured.module))

    def _make(self, again: frozenset[int]) -> Made[Compiled]:
        made = compile_capture(self._copy(), self._mesh, "data", recompute=again)
        return Made(made, step_peak(made.program, in_calls=True))

    def measured(self, compiled: Compiled) -> int:
        """Live bytes of the third step over those before it."""
        fields = fields_of(self._captured, self._optimizer, self._level1, 0)
        running = TrainStep(
            Program.of(compiled.program_text, None),
            manifest_of(compiled.description, fields, ""),
            self._captured.constants,
            state={n: v.clone() for (_, n), v in self._captured.initial_values().items() if v is not None},
        )
        values = running.leaves(self._batch)
        live = LiveBytes()
        running.step_leaves(values)
        live.start()
        running.step_leaves(values)
        running.live_leaves(values, live)
        return live.peak_bytes


def ours(name: str, count: int) -> list[dict[str, int]]:
    """Budget, planned and measured peak, all over what a step is given."""
    rungs = Rungs(name)
    ladder = rungs.ladder
    most = ladder.peak(ladder.within(1 << 50).step)
    least, given = 0, 0
    try:
        ladder.within(1)
    except BudgetTooSmall as error:
        least, given = (int(str(error.fields[key])) for key in ("least", "given"))
    rows: list[dict[str, int]] = []
    measured: dict[int, int] = {}
    for number in range(count):
        budget = least + (most - least) * number // (count - 1)
        step = ladder.within(budget).step
        planned = ladder.peak(step)
        if planned not in measured:
            measured[planned] = rungs.measured(step)
        rows.append({"budget": budget - given, "planned": planned - given, "measured": measured[planned]})
    return rows


def theirs(name: str, count: int) -> list[dict[str, float]]:
    """The knob, and the measured peak of ``torch.compile``'s forward and backward and AdamW's step."""
    return [
        {"knob": n / (count - 1), "measured": _measured_torch(name, n / (count - 1))} for n in range(count)
    ]


def _measured_torch(name: str, knob: float) -> int:
    import torch._functorch.config as functorch

    torch.manual_seed(0)
    torch._dynamo.reset()
    model, batch, loss = MODELS[name]()
    optimizer = torch.optim.AdamW(model.parameters())
    with functorch.patch(activation_memory_budget=knob):
        compiled = torch.compile(model, backend="aot_eager_decomp_partition")

        def step() -> None:
            made = compiled(*batch) if isinstance(batch, tuple) else compiled(**batch)  # pyright: ignore
            (made if loss else made.loss).backward()
            del made
            optimizer.step()
            optimizer.zero_grad()

        step()
        live = LiveBytes()
        live.start()
        step()
        live.sample()
        step()
        live.stop()
    return live.peak_bytes


def downs(peaks: Sequence[float]) -> int:
    return sum(later < earlier - NOISE_BYTES for earlier, later in pairwise(peaks))


def main() -> None:
    arguments = sys.argv[1:]
    count = int(arguments[arguments.index("--budgets") + 1]) if "--budgets" in arguments else BUDGETS
    if "--one" in arguments:
        name = arguments[arguments.index("--one") + 1]
        torch.set_num_threads(1)
        print(json.dumps({"ours": ours(name, count), "theirs": theirs(name, count)}))
        return
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    summary: list[list[object]] = []
    print(heading("Measured peaks of a step under a memory budget, over the state before it"))
    for name in [name for name in arguments if name in MODELS] or MODELS:
        command = [sys.executable, __file__, "--one", name, "--budgets", str(count)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if ran.returncode:
            print(name, ran.stderr[-900:], file=sys.stderr, flush=True)
            continue
        found = json.loads(ran.stdout.splitlines()[-1])
        rows = [
            [o["budget"] / 1e6, o["planned"] / 1e6, o["measured"] / 1e6, t["knob"], t["measured"] / 1e6]
            for o, t in zip(found["ours"], found["theirs"], strict=True)
        ]
        print(f"\n{name}, MB")
        print(
            table(["budget", "planned", "measured", "PyTorch's knob", "PyTorch, measured"], rows), flush=True
        )
        over = max(o["measured"] - o["budget"] for o in found["ours"])
        peaks = [[row["measured"] for row in found[side]] for side in ("ours", "theirs")]
        summary.append([name, over / 1e6, *map(downs, peaks), *(min(p) / 1e6 for p in peaks)])
    print("\nover all budgets")
    heads = ["model", "most over budget, MB", "steps down", "PyTorch's", "least measured, MB", "PyTorch's"]
    print(table(heads, summary))


if __name__ == "__main__":
    main()
