"""Measured steps of ``plan="auto"`` beside every preset and product of presets, on four CPU processes.

    python test/bench/auto_duel.py [--pair NAME ...] [--steps 21] [--most 8]

A pair is a model and a batch. Without a mesh, ``plan="auto"`` searches for this machine, shared by four
processes. All presets and products that ``shardc plan`` knows for four devices are priced for it, too. The
``--most`` cheapest by that price, and plain data parallelism, are measured beside the searched plan: steps in
turn, each turn in an order of its own, between barriers, one thread a process. *Ratio*: median over turns of
the searched plan's time over the best other's, which is the one with the least median.
"""

from __future__ import annotations

import argparse
import copy
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist
from four_process_step import Step, losses, time_in_turn
from launch import PROCESSES
from machine import heading, table
from torch import Tensor, nn

import shardc
from shardc.compiler.local_cluster import cluster_of
from shardc.diagnostics.base import ShardcError
from shardc.planning.candidates import Candidate, meshes_of, plans_of
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question, tokens_of

CLUSTER = f"local-{PROCESSES}"
PLAIN = Candidate({"data": PROCESSES}, "data", 1)


@dataclass(frozen=True)
class Pair:
    """A model and its global batch."""

    model: Callable[[], nn.Module]
    batch: Callable[[], object]
    loss: Callable[..., Tensor] | None = None


def llama(layers: int, width: int, vocabulary: int) -> Callable[[], nn.Module]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=vocabulary,
        use_cache=False,
    )
    return lambda: LlamaForCausalLM(config)


def mlp(width: int, layers: int) -> Callable[[], nn.Module]:
    """Equal layers without biases, narrow at both ends."""

    def made() -> nn.Module:
        inner = (part for _ in range(layers) for part in (nn.Linear(width, width, bias=False), nn.ReLU()))
        return nn.Sequential(nn.Linear(64, width), *inner, nn.Linear(width, 64))

    return made


class Tables(nn.Module):
    """A table of rows, and a small dense part for each sample."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.dense = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, ids: Tensor) -> Tensor:
        return self.dense(self.table(ids).mean(dim=1)).squeeze(-1)


def images() -> nn.Module:
    parts = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(
        *parts, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 2048), nn.Linear(2048, 10)
    )


def ids(batch: int, length: int, vocabulary: int) -> Callable[[], object]:
    def made() -> object:
        tokens = torch.randint(0, vocabulary, (batch, length))
        return {"input_ids": tokens, "labels": tokens}

    return made


def numbers(*shape: int) -> Callable[[], object]:
    return lambda: (torch.randn(*shape),)


def rows(batch: int, bag: int, count: int) -> Callable[[], object]:
    return lambda: (torch.randint(0, count, (batch, bag)),)


def square(out: Tensor, _: object) -> Tensor:
    return out.float().square().mean()


PAIRS: Mapping[str, Pair] = {
    "Llama 4 x 256, 8 x 64": Pair(llama(4, 256, 1024), ids(8, 64, 1024)),
    "Llama 4 x 256, 32 x 32": Pair(llama(4, 256, 1024), ids(32, 32, 1024)),
    "Llama 2 x 512, 4 x 128": Pair(llama(2, 512, 1024), ids(4, 128, 1024)),
    "Llama 2 x 128, vocabulary 32k, 8 x 32": Pair(llama(2, 128, 32768), ids(8, 32, 32768)),
    "MLP 8 x 1024, 16": Pair(mlp(1024, 8), numbers(16, 64), square),
    "MLP 8 x 1024, 1024": Pair(mlp(1024, 8), numbers(1024, 64), square),
    "MLP 2 x 4096, 64": Pair(mlp(4096, 2), numbers(64, 64), square),
    "MLP 32 x 256, 256": Pair(mlp(256, 32), numbers(256, 64), square),
    "table of 100k x 64, 256": Pair(lambda: Tables(100_000, 64), rows(256, 16, 100_000), square),
    "table of 20k x 512, 1024": Pair(lambda: Tables(20_000, 512), rows(1024, 16, 20_000), square),
    "convolutions, 16": Pair(images, numbers(16, 3, 32, 32), square),
    "convolutions, 128": Pair(images, numbers(128, 3, 32, 32), square),
}


def adamw(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)  # type: ignore[arg-type]


def priced(name: str, pair: Pair) -> list[tuple[float, Candidate]]:
    """Return the presets that compile, with the seconds that the cost model gives them, cheapest first."""
    model, batch = pair.model(), pair.batch()
    question = Question(name, model, adamw(model.parameters()), batch, pair.loss, tokens_of(batch))
    cluster = cluster_of(CLUSTER)
    pricer, found = Pricer(question, cluster=cluster), list[tuple[float, Candidate]]()
    for mesh in meshes_of(PROCESSES, PROCESSES, question.samples, question.layers):
        for candidate in plans_of(mesh, question.samples):
            try:
                found.append((pricer.price(candidate).on(cluster).time.seconds, candidate))
            except ShardcError as error:
                print(f"{name}: {candidate.text} is left out: {type(error).__name__}", flush=True)
    return sorted(found, key=lambda pair: pair[0])


def duel(name: str, options: argparse.Namespace) -> None:
    """What each of the processes does for one pair."""
    pair = PAIRS[name]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, batch = pair.model(), pair.batch()

    def compiled(**plan: object) -> shardc.CompiledStep:
        mine = copy.deepcopy(model)
        step = shardc.compile_step(mine, adamw(mine.parameters()), batch, loss=pair.loss, **plan)
        step.running  # noqa: B018 (joins the ranks, before anything is timed)
        return step

    auto = compiled(plan="auto")
    given: list[object] = [priced(name, pair) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(given)
    every: list[tuple[float, Candidate]] = given[0]  # type: ignore[assignment]
    chosen = every[: options.most]
    chosen += [(seconds, of) for seconds, of in every[options.most :] if of.text == PLAIN.text]
    others = {candidate.text: compiled(**candidate.options) for _, candidate in chosen}
    steps: dict[str, Step] = {"auto": lambda: auto(batch)}
    steps |= {text: (lambda step=step: step(batch)) for text, step in others.items()}
    first = losses(steps)
    assert all(abs(loss / first["auto"] - 1) < 1e-4 for loss in first.values()), first
    taken = {text: wall for text, (wall, _) in time_in_turn(steps, options).items()}
    if dist.get_rank() == 0:
        print(row(name, auto, dict((of.text, seconds) for seconds, of in chosen), taken), flush=True)


def row(
    name: str, auto: shardc.CompiledStep, estimates: Mapping[str, float], taken: Mapping[str, list[float]]
) -> str:
    """Return a row of the table, and the measured times of all contenders."""
    best = min(estimates, key=lambda text: median(taken[text]))
    ratio = median(a / b for a, b in zip(taken["auto"], taken[best], strict=True))
    spread = max(taken["auto"]) / min(taken["auto"])
    axes = " x ".join(f"{axis.name} {axis.size}" for axis in auto.compiled.mesh.axes)
    pick = f"{auto.compiled.plan.text} on {axes}"
    cells = [name, pick, 1e3 * median(taken["auto"]), best, 1e3 * median(taken[best]), f"{ratio:.2f}", spread]
    lines = [
        f"  {t}: estimated {1e3 * s:.2f} ms, measured {1e3 * median(taken[t]):.2f}"
        for t, s in estimates.items()
    ]
    return "\n".join([table(COLUMNS, [cells]), *auto.around[:3], *lines])


COLUMNS = ("pair", "auto", "ms", "best preset", "ms", "ratio", "spread")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", action="append", choices=PAIRS)
    parser.add_argument("--steps", type=int, default=21)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--most", type=int, default=8)
    options = parser.parse_args()
    names = options.pair or list(PAIRS)
    if "RANK" in os.environ:
        duel(names[0], options)
        dist.barrier()
        sys.stdout.flush()
        os._exit(0)  # Gloo's threads abort at random in a normal exit
    print(heading("Searched plans beside presets, four processes"))
    for name in names:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        launch += ["--nproc-per-node", str(PROCESSES), __file__, "--pair", name]
        launch += [f"--{key}={getattr(options, key)}" for key in ("steps", "warmup", "most")]
        subprocess.run(launch, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)


if __name__ == "__main__":
    main()
