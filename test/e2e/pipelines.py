"""Models that are trained as pipelines, and that training on simulated ranks, in f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from models import BATCH, LENGTH, TRAININGS, VOCAB, Batch, Training, sgd, sum_of_squares
from recall import Recall
from torch import Tensor, nn
from torch.nn import functional as F
from torch_mlir import ir
from training import BOUND, Captured, Values, capture, errors, train_eagerly

from shardc.backends.eager.pipeline import Blocks, read_pipeline, run_pipeline
from shardc.backends.eager.proof.blocks import cut, join
from shardc.passes.pipeline.pipe_cut import PipeCut
from shardc.step.values import batch_leaves, example_inputs

STEPS = 2


class Skips(nn.Module):
    """Eight layers of one size; the first layers' results skip to the last, as in a U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8 if i < 4 else 16, 8) for i in range(8))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        kept = []
        for layer in list(self.layers)[:4]:
            kept.append(x)
            x = F.gelu(layer(x))
        for layer in list(self.layers)[4:]:
            x = F.gelu(layer(torch.cat([x, kept.pop()], 1)))
        return F.cross_entropy(x, labels)


class UNet(nn.Module):
    """Two levels with group norm; images of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.down, self.middle = nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.up, self.out = nn.Conv2d(32, 16, 3, padding=1), nn.Conv2d(24, 3, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        a = F.silu(self.norm(self.first(images)))
        b = F.silu(self.down(a))
        c = F.silu(self.up(torch.cat([b, F.silu(self.middle(b))], 1)))
        return self.out(torch.cat([a, F.interpolate(c, scale_factor=2.0)], 1))


class Tower(nn.Module):
    """Eight equal layers that cost more than sending what is between them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


def rows() -> Batch:
    """Some labels are to be ignored, so micro-batches do not weigh the same."""
    labels = torch.where(torch.rand(16) < 0.3, -100, torch.randint(0, 8, (16,)))
    return torch.randn(16, 8), labels


def images() -> Batch:
    return (torch.randn(BATCH, 3, 8, 8),)


def token_pairs() -> Batch:
    """As many sequences as each has tokens: their numbers and positions are equal, and lie along different
    dims.
    """
    return {
        "input_ids": torch.randint(0, VOCAB, (BATCH, LENGTH)),
        "labels": torch.randint(0, VOCAB, (BATCH, BATCH)),
    }


PIPELINED = {
    "skips": Training(Skips, rows, loss=lambda output, batch: output),
    "tower": Training(Tower, lambda: (torch.randn(16, 64),), loss=sum_of_squares),
    "llama": TRAININGS["llama"],
    "gpt2": TRAININGS["gpt2"],
    "t5": replace(TRAININGS["t5"], batch=token_pairs),
    "unet": Training(UNet, images, sgd, sum_of_squares),
}


@cache
def captured(name: str, clip: float | None = None) -> Captured:
    return capture(PIPELINED[name], clip)


@cache
def trained(name: str, clip: float | None = None) -> list[Values]:
    return train_eagerly(PIPELINED[name], STEPS, clip)


def cut_step(
    name: str, ranks: int, micro_batches: int, cutting: PipeCut, clip: float | None = None
) -> ir.Module:
    """One of ``PIPELINED`` as a pipeline."""
    module = captured(name, clip).compile({"pipe": ranks}, {}, micro_batches).rank_module
    cutting.run(module)
    assert module.operation.verify()
    return module


def check_pipeline(name: str, module: ir.Module, clip: float | None = None) -> None:
    """The pipeline must make the losses and the state of eager training on one device after each step."""
    ranks = PipelineRanks(captured(name, clip), module)
    check_ranks(ranks, PIPELINED[name].batches(STEPS), trained(name, clip))


def check_ranks(ranks: PipelineRanks, batches: Sequence[Batch], wanted: Sequence[Values]) -> None:
    """``ranks``, trained on ``batches``, must make the losses and the state ``wanted`` after each."""
    found, spread = ranks.train(batches)
    for number, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        wrong = {key: error for key, error in errors(ours, theirs).items() if not error <= BOUND}
        assert not wrong, (
            f"step {number}: {len(wrong)} of {len(theirs)} tensors differ: {list(wrong.items())[:8]}"
        )
    assert spread == 0, f"ranks that hold the same differ by {spread}"


class PipelineRanks:
    """The programs of a pipeline's ranks and their state."""

    def __init__(self, step: Captured, module: ir.Module, recall: Recall | None = None) -> None:
        program = read_pipeline(module)
        assert program is not None
        self._recall, self._texts = recall, dict[str, str]()
        self._step, self.program, self._seed = step, program, 0
        self._blocks: list[Blocks] = [{} for _ in program.functions]

    def _results(
        self, stage: ir.Operation, micro_batch: int, inputs: Sequence[Any], compute: Callable[[], list[Any]]
    ) -> list[Any]:
        name = stage.attributes["sym_name"].value
        if name not in self._texts:
            self._texts[name] = stage.get_asm(assume_verified=True, use_local_scope=True)
        return self._recall.results(self._texts[name], micro_batch, inputs, compute)

    def train(self, batches: Sequence[Batch]) -> tuple[list[Values], float]:
        """Loss and state after each batch, and by how much ranks differ that hold the same."""
        made, spread = [], 0.0
        for batch in batches:
            self._take(batch)
            recall = None if self._recall is None else self._results
            results = run_pipeline(self.program, self._blocks, widen=True, recall=recall)
            whole: Values = {}
            for ports, found, blocks in zip(self.program.results, results, self._blocks, strict=True):
                for port in ports:
                    assert port.sharding is not None
                    value, gap = join(
                        found[port.key], port.sharding, self.program.mesh, port.global_type.shape
                    )
                    spread = max(spread, gap, _gap(whole.setdefault(port.key, value), value))
                blocks.update(found)
            made.append(whole)
        return made, spread

    def _take(self, batch: Batch) -> None:
        """Inputs for one step: state from the step before, or the model's own values at the first."""
        step = self._step
        first = not any(self._blocks)
        inputs = example_inputs(step.capture, step.optimizer, batch, self._seed)
        if not first:
            inputs |= {("input", n): t for n, t in batch_leaves(step.capture, batch).items()}
            for number in step.capture.hyperparameters:  # the very first step's may differ
                inputs["hyper", number.name].fill_(number.value(step.optimizer))
        for ports, blocks in zip(self.program.arguments, self._blocks, strict=True):
            for port in ports:
                if first or port.role not in ("param", "opt_state", "buffer"):
                    assert port.sharding is not None
                    value = inputs[port.key].clone()
                    blocks[port.key] = cut(value, port.sharding, self.program.mesh, port.padded)
        self._seed += 1


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max()) if a.numel() else 0.0
