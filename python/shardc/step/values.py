"""Values for a captured step's arguments: what the oracle runs on, and what an artefact stores."""

from __future__ import annotations

import torch
from torch import Tensor

from shardc.diagnostics.api import NoValues
from shardc.frontend.step.batch import flatten_batch
from shardc.frontend.step.spec import Capture


def example_inputs(
    capture: Capture, optimizer: torch.optim.Optimizer, batch: object, seed: int = 0
) -> dict[tuple[str, str], Tensor]:
    """A tensor for each argument by role and name, of the model, the optimizer and the batch.

    Raises NoValues for a model on the meta device.
    """
    values: dict[tuple[str, str], Tensor] = {}
    leaves, initial = batch_leaves(capture, batch), capture.initial_values()
    numbers = {h.name: h for h in capture.hyperparameters}
    for spec in capture.arguments:
        key = (spec.role, spec.name)
        if spec.role in ("param", "opt_state", "buffer"):
            value = initial[key]
            if value is None or value.is_meta:
                raise NoValues(name=spec.name)
        elif spec.role == "input":
            value = leaves[spec.name]
        elif spec.role == "hyper":
            h = numbers[spec.name]
            number = h.first_step if h.first_step is not None else h.value(optimizer)
            value = torch.tensor(number, dtype=torch.float64)
        elif spec.role == "seed":
            value = torch.tensor(seed)
        else:
            value = capture.constants[spec.name]
        values[key] = value.detach().to(spec.dtype)
    return values


def batch_leaves(capture: Capture, batch: object) -> dict[str, Tensor]:
    """The tensors of a batch by the names of the step's inputs."""
    tensors, _ = flatten_batch(batch)
    return dict(zip(capture.batch_tree.names, tensors, strict=True))
