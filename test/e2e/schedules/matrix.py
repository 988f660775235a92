"""Trials of every schedule at every size, for three models.

A trial trains one step on simulated ranks in f64 and compares loss, parameters and optimizer state with
training on one device. What a schedule does not change is done once for all: the step is compiled for each
number of micro-batches, and stages run once for each micro-batch
(:class:`recall.Recall`); the rest are replays.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import date
from functools import cache

import torch
from models import TRAININGS, VOCAB, Batch, Training
from pipelines import PipelineRanks, Skips, check_ranks
from stage_recall import Recall
from stale_training import SHARES, Case, stages_of_parameters, stale_training
from torch_mlir import ir
from training import Captured, Values, capture, train_eagerly

from shardc.dialects.dist.mesh import Mesh, MeshAxis, read_mesh, write_mesh
from shardc.dialects.pipe.schedule import Schedule
from shardc.options.schedules import AUTO
from shardc.passes.manager.program import copy_module
from shardc.passes.pipeline.pipe_cut import cut_into_stages
from shardc.passes.pipeline.schedules import by_name, registry

STAGES, TIMES = (2, 4, 8), (1, 2, 4)
ROWS = max(STAGES) * max(TIMES)
"""Samples of a batch: at least one for each micro-batch."""
LENGTH = 4


def tokens() -> Batch:
    ids = torch.randint(0, VOCAB, (ROWS, LENGTH))
    return {"input_ids": ids, "labels": ids.clone()}


def token_pairs() -> Batch:
    """Source and target of different lengths."""
    return {
        "input_ids": torch.randint(0, VOCAB, (ROWS, LENGTH)),
        "labels": torch.randint(0, VOCAB, (ROWS, LENGTH + 1)),
    }


def rows() -> Batch:
    """Some labels are to be ignored, so micro-batches do not weigh the same."""
    labels = torch.where(torch.rand(ROWS) < 0.3, -100, torch.randint(0, 8, (ROWS,)))
    return torch.randn(ROWS, 8), labels


MODELS: dict[str, Training] = {
    "llama": replace(TRAININGS["llama"], batch=tokens),
    "t5": replace(TRAININGS["t5"], batch=token_pairs),
    "skips": Training(Skips, rows, loss=lambda output, batch: output),
}
SLICED = tuple(n for n, named in registry.SCHEDULES.items() if "slices" in named.options)
STALE = tuple(n for n, named in registry.SCHEDULES.items() if "changes" in named.says)
WHOLE = (*(n for n in registry.SCHEDULES if n not in (*SLICED, *STALE)), AUTO)
"""All that run whole sequences and change no mathematics."""
SCHEDULES = {"llama": (*WHOLE, *SLICED, *STALE), "t5": WHOLE, "skips": (*WHOLE, *STALE)}
"""Of each model. T5's encoder reads tokens in both directions and its embedding is tied; rows of ``skips``
are no sequences.
"""


@dataclass(frozen=True)
class Cell:
    """One trial. ``ranks``: as many as the schedule can put ``stages`` on."""

    model: str
    schedule: str
    stages: int
    micro_batches: int

    def __str__(self) -> str:
        return f"{self.model}-{self.schedule}-{self.stages}x{self.micro_batches}"

    @property
    def ranks(self) -> int:
        fewest = 1 if self.schedule == AUTO else registry.SCHEDULES[self.schedule].fewest
        return self.stages // fewest


def cells(models: tuple[str, ...] = tuple(MODELS)) -> list[Cell]:
    """The whole matrix; those that share the most work stand side by side."""
    return [
        Cell(model, schedule, stages, stages * times)
        for model in models
        for times in TIMES
        for stages in STAGES
        for schedule in SCHEDULES[model]
    ]


def sample(day: date, schedules: int = 4) -> list[Cell]:
    """For each model one size and some schedules, others each day."""
    chance = random.Random(day.toordinal())
    found = []
    for model in MODELS:
        stages, times = chance.choice(STAGES), chance.choice(TIMES)
        found += [Cell(model, s, stages, stages * times) for s in chance.sample(SCHEDULES[model], schedules)]
    return found


def try_cell(cell: Cell) -> None:
    """Raises what compiling raises, and AssertionError where the step differs from one device's; under a
    schedule with old weights, from the loop of ``stale_training.py``, which keeps them by hand.
    """
    module = cut_cell(cell)
    ranks = start(cell, module, _recall(cell.model, cell.micro_batches))
    wanted = _trained(cell.model) if cell.schedule not in STALE else _trained_on_old_weights(cell, module)
    check_ranks(ranks, MODELS[cell.model].batches(1), wanted)


def cut_cell(cell: Cell) -> ir.Module:
    """The programs of the pipeline's ranks."""
    module = copy_module(_partitioned(cell.model, cell.micro_batches))
    mesh = read_mesh(module)
    assert mesh is not None
    _set_ranks(module, mesh, cell.ranks)
    schedule = _schedule(cell.schedule, cell.stages, cell.ranks, cell.micro_batches)
    cut_into_stages(module, schedule, "pipe", stale_weights=cell.schedule in STALE)
    return module


def start(cell: Cell, module: ir.Module, recall: Recall | None = None) -> PipelineRanks:
    return PipelineRanks(_captured(cell.model), module, recall)


def _set_ranks(module: ir.Module, mesh: Mesh, ranks: int) -> None:
    """The pipeline's axis is given another size: nothing is cut over it yet."""
    next(op.operation for op in module.body.operations if op.operation.name == "dist.mesh").erase()
    write_mesh(
        module, Mesh(tuple(MeshAxis(a.name, ranks, a.kind) if a.name == "pipe" else a for a in mesh.axes))
    )


def _trained_on_old_weights(cell: Cell, module: ir.Module) -> list[Values]:
    case = Case(cell.model, cell.ranks, cell.micro_batches, SHARES[cell.model])
    return stale_training(case, cell.schedule, stages_of_parameters(module), 1, MODELS[cell.model])


@cache
def _captured(model: str) -> Captured:
    return capture(MODELS[model])


@cache
def _trained(model: str) -> list[Values]:
    return train_eagerly(MODELS[model], 1)


@cache
def _partitioned(model: str, micro_batches: int) -> ir.Module:
    return _captured(model).compile({"pipe": 2}, {}, micro_batches).rank_module


@cache
def _schedule(name: str, stages: int, ranks: int, micro_batches: int) -> Schedule:
    options = {"slices": 2} if name in SLICED else {}
    return by_name.schedule(name, stages, micro_batches, ranks=ranks, **options)


@cache
def _recall(model: str, micro_batches: int) -> Recall:
    return Recall()
