"""Values of a captured step's arguments, for the oracle to run on and for artefacts to store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

from shardc.diagnostics.api import NoValues
from shardc.frontend.step.batch import flatten_batch
from shardc.frontend.step.spec import Capture
from shardc.step.elsewhere import Elsewhere

NOISE = 0.01
"""Relative noise of elements that stand in for other ranks' blocks."""


def example_inputs(
    capture: Capture,
    optimizer: torch.optim.Optimizer | None,
    batch: object,
    seed: int = 0,
    held: Mapping[str, Tensor] | None = None,
) -> dict[tuple[str, str], Tensor]:
    """Return a tensor for each argument of the step, by role and name.

    Values come from the model, the optimizer and the batch. ``held``: tensors of a running step, by name, for
    those that were sharded when the step was captured. :func:`stand_in` makes them whole, so that one rank
    can check a program alone. Raises NoValues for a model on the meta device.
    """
    numbers = {
        h.name: h.value(optimizer) if h.first_step is None else h.first_step
        for h in capture.hyperparameters
        if optimizer is not None
    }
    known: dict[tuple[str, str], Tensor | None] = {
        **capture.initial_values(),
        **{("input", name): leaf for name, leaf in batch_leaves(capture, batch).items()},
        **{("hyper", name): torch.tensor(n, dtype=torch.float64) for name, n in numbers.items()},
        **{("constant", name): value for name, value in capture.constants.items()},
    }
    values: dict[tuple[str, str], Tensor] = {}
    for spec in capture.arguments:
        key = (spec.role, spec.name)
        value = torch.tensor(seed) if spec.role == "seed" else known[key]
        value = stand_in((held or {}).get(spec.name) if value is None else value)
        if value is None or value.is_meta:
            raise NoValues(name=spec.name)
        values[key] = value.detach().to(spec.dtype)
    return values


def stand_in(value: Tensor | None) -> Tensor | None:
    """Return a whole tensor in place of one that is sharded over ranks. Others are returned unchanged.

    It repeats the rank's own block with noise, which is the same for all tensors of a shape. So second
    moments stay positive, and no two blocks are equal. A tensor of another rank becomes noise between 0 and
    0.1.
    """
    if isinstance(value, Elsewhere):
        return _noise(value.shape).mul(0.1).to(value.dtype)
    if not isinstance(value, DTensor):
        return value
    block = cast(DTensor, value.detach()).to_local()
    if all(isinstance(placement, Replicate) for placement in value.placements):
        return block
    block = block.flatten() if block.numel() else block.new_ones(1)
    whole = block.repeat(-(-value.numel() // block.numel()))[: value.numel()].reshape(value.shape)
    if not (whole.is_floating_point() or whole.is_complex()):
        return whole
    return (whole * (1 + NOISE * _noise(value.shape)).to(whole.device)).to(whole.dtype)


def _noise(shape: torch.Size) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def batch_leaves(capture: Capture, batch: object) -> dict[str, Tensor]:
    """Return the tensors of a batch, by the names of the step's inputs."""
    tensors, _ = flatten_batch(batch)
    return dict(zip(capture.batch_tree.names, tensors, strict=True))
