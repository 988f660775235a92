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
"""Number of periods, by run and stretch."""


@contextmanager
def shallow(question: Question, runs: Sequence[Run], periods: Periods) -> Iterator[Question]:
    """Context in which the question's model has only the given periods of equal layers."""
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
    """Return a copy of the optimizer with only the model's parameters."""
    kept = {id(parameter) for parameter in model.parameters()}
    made = copy.copy(optimizer)
    groups = [{**g, "params": [p for p in g["params"] if id(p) in kept]} for g in optimizer.param_groups]
    made.param_groups = [group for group in groups if group["params"]]
    return made
