"""One training step of a language model as a pipeline of four CPU processes: 1F1B and interleaved 1F1B, ours
against ``torch.distributed.pipelining``'s.

    python test/bench/pipeline_step.py

The same model, cut at the same blocks, one thread a process, f32, AdamW. All run in the same processes, in
turn, each step between two barriers; medians after the warm-up, a ratio's terms from one turn. CPU seconds
are those of all four processes together. Losses are compared at the first step and at the last.
"""

from __future__ import annotations

import argparse
import copy
from functools import partial
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from four_process_step import Step, time_in_turn
from launch import PROCESSES, on_processes
from machine import heading, table
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.nn import functional as F

import shardc

VOCAB = 2048
STAGES = {"1f1b": PROCESSES, "interleaved": 2 * PROCESSES}


class Block(nn.Module):
    """Attention and a feed-forward net, each behind a norm; [batch, sequence, width]."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.first(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Model(nn.Module):
    """Token embedding, blocks, scores of the next token."""

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return loss_of(self.head(x), labels)


def loss_of(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), labels.flatten())


def ours(
    model: Model, batch: tuple[Tensor, Tensor], name: str, options: argparse.Namespace, fuse: bool
) -> Step:
    each = len(model.blocks) // STAGES[name]
    step = shardc.compile_step(
        model,
        _adamw(model),
        batch,
        mesh={"pipe": PROCESSES},
        plan="pipeline",
        loss=lambda loss, _: loss,
        micro_batches=options.micro_batches,
        schedule=name,
        fuse=fuse,
        stages=[f"blocks.{each * stage}" for stage in range(1, STAGES[name])],
    )
    step.running  # noqa: B018 (joins the ranks, before anything is timed)
    return lambda: step(batch)


class Peer:
    """The same training with torch's stages and schedules."""

    def __init__(
        self, model: Model, batch: tuple[Tensor, Tensor], name: str, options: argparse.Namespace
    ) -> None:
        rank, stages = dist.get_rank(), STAGES[name]
        each = len(model.blocks) // stages
        parts = {index: self._part(model, index, each, stages) for index in range(rank, stages, PROCESSES)}
        self._first, self._last = 0 in parts, stages - 1 in parts
        self._ids, self._labels = batch
        self._parts = nn.ModuleList(parts.values())
        self._optimizer = _adamw(self._parts)
        made = [PipelineStage(part, index, stages, torch.device("cpu")) for index, part in parts.items()]
        count = options.micro_batches
        self._schedule: Any = (
            Schedule1F1B(made[0], count, loss_fn=loss_of)
            if len(made) == 1
            else ScheduleInterleaved1F1B(made, count, loss_fn=loss_of)
        )

    @staticmethod
    def _part(model: Model, index: int, each: int, stages: int) -> nn.Sequential:
        blocks = list(model.blocks)[each * index : each * (index + 1)]
        first, last = [model.embed] if index == 0 else [], [model.head] if index == stages - 1 else []
        return nn.Sequential(*first, *blocks, *last)

    def __call__(self) -> Tensor:
        """The mean loss on the rank of the last stage, zero on the others."""
        self._optimizer.zero_grad()
        losses: list[Tensor] = []
        inputs = (self._ids,) if self._first else ()
        more = {"target": self._labels, "losses": losses} if self._last else {}
        self._schedule.step(*inputs, **more)
        self._optimizer.step()
        return torch.stack(losses).mean().detach() if losses else torch.zeros(())


def _adamw(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=1e-3)


def contenders(options: argparse.Namespace) -> dict[str, Step]:
    torch.manual_seed(0)
    model = Model(options.blocks, options.width)
    ids = torch.randint(0, VOCAB, (options.batch, options.sequence))
    batch = ids, ids.roll(-1, 1)
    steps: dict[str, Step] = {}
    for name in options.schedules:
        steps[f"torch, {name}"] = Peer(copy.deepcopy(model), batch, name, options)
        for fuse in (False, True)[: 2 if options.fuse else 1]:
            title = f"shardc, {name}{', kernels' if fuse else ''}"
            steps[title] = ours(copy.deepcopy(model), batch, name, options, fuse)
    return steps


def losses(steps: dict[str, Step]) -> dict[str, float]:
    """Each one's loss in one more step: ours is on all ranks, torch's on one."""
    found = {}
    for name, step in steps.items():
        value = step().double()
        dist.all_reduce(value, dist.ReduceOp.MAX)
        found[name] = value.item()
    return found


def report(first: dict[str, float], last: dict[str, float], taken: Any, options: argparse.Namespace) -> str:
    rows = []
    for name, (wall, cpu) in taken.items():
        base_wall, base_cpu = taken[f"torch, {name.split(', ')[1]}"]
        ratios = [
            median(a / b for a, b in zip(x, y, strict=True)) for x, y in ((wall, base_wall), (cpu, base_cpu))
        ]
        rows.append(
            [
                name,
                1e3 * median(wall),
                1e3 * min(wall),
                f"{ratios[0]:.3f}x",
                1e3 * median(cpu),
                f"{ratios[1]:.3f}x",
                f"{first[name]:.5f}",
                f"{last[name]:.5f}",
            ]
        )
    size = (
        f"{options.blocks} blocks of width {options.width}, batch {options.batch} x {options.sequence}, "
        f"{options.micro_batches} micro-batches, {options.steps} steps"
    )
    times = ["median ms", "least ms", "time / torch's", "CPU ms, 4 ranks", "CPU / torch's"]
    columns = ["step", *times, "first loss", "last"]
    return heading(f"A pipeline of four processes ({size})") + "\n" + table(columns, rows)


def work(options: argparse.Namespace) -> None:
    """What each of the four processes does."""
    torch.set_num_threads(1)
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    steps = contenders(options)
    first = losses(steps)
    taken = time_in_turn(steps, options)
    last = losses(steps)
    if dist.get_rank() == 0:
        print(report(first, last, taken, options))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16, help="sequences in the batch")
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--schedules", nargs="*", choices=tuple(STAGES), default=list(STAGES))
    parser.add_argument("--fuse", action="store_true", help="ours with compiled kernels as well")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    options = parser.parse_args()
    on_processes(partial(work, options))


if __name__ == "__main__":
    main()
