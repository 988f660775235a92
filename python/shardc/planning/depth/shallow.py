"""Shallow versions of a question's model: the same modules, with fewer equal layers in its lists."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from shardc.planning.depth.runs import Run
from shardc.planning.question import Question

Periods = Sequence[Sequence[int]]
"""Of each run, how many periods of each of its stretches."""


@contextmanager
def shallow(question: Question, runs: Sequence[Run], periods: Periods) -> Iterator[Question]:
    """The question with so many layers; its model has them until the context is left."""
    model = question.model
    try:
        for run, counts in zip(runs, periods, strict=True):
            if run.owner is None:
                model = run.shortened(counts)
            else:
                setattr(run.owner, run.name, run.shortened(counts))
        yield replace(question, model=model, optimizer=_of_parameters(question.optimizer, model))
    finally:
        for run in runs:
            if run.owner is not None:
                setattr(run.owner, run.name, run.layers)


def _of_parameters(optimizer: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a model's parameters alone."""
    kept = {id(parameter) for parameter in model.parameters()}
    made = copy.copy(optimizer)
    groups = [{**g, "params": [p for p in g["params"] if id(p) in kept]} for g in optimizer.param_groups]
    made.param_groups = [group for group in groups if group["params"]]
    return made
