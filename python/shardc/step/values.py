"""Values for a captured step's arguments: what the oracle runs on, and what an artefact stores."""

from __future__ import annotations

import torch
from torch import Tensor

from shardc.diagnostics.api import NoValues
from shardc.frontend.step.batch import flatten_batch
from shardc.frontend.step.spec import Capture


def example_inputs(
    capture: Capture, optimizer: torch.optim.Optimizer | None, batch: object, seed: int = 0
) -> dict[tuple[str, str], Tensor]:
    """A tensor for each argument by role and name, of the model, the optimizer and the batch.

    Raises NoValues for a model on the meta device.
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
        if value is None or value.is_meta:
            raise NoValues(name=spec.name)
        values[key] = value.detach().to(spec.dtype)
    return values


def batch_leaves(capture: Capture, batch: object) -> dict[str, Tensor]:
    """The tensors of a batch by the names of the step's inputs."""
    tensors, _ = flatten_batch(batch)
    return dict(zip(capture.batch_tree.names, tensors, strict=True))
