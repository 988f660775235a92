"""Perturbed state for proofs, because freshly initialised state hides errors.

Norm weights are all 1, and biases and the optimizer's moments are all 0. Whichever block of them a rank gets,
the values are the same. So the proof starts from values that differ between elements.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.eager.program import find_step
from shardc.backends.eager.proof.signature import Key

PART = 0.01
"""Relative size of the perturbation: small, so that signs and bounds are kept."""
SEED = 20211106


def perturbed(inputs: Mapping[Key, Tensor], module: ir.Module) -> dict[Key, Tensor]:
    """Return ``inputs`` of the global program ``module``, with state whose elements all differ.

    Perturbed are floating parameters, buffers that the step updates, and optimizer state whose elements are
    all equal. Their elements are multiplied by ``1 +- 0.01``; zeros become ``0.005`` to ``0.01``, so that
    second moments and variances stay positive. Other optimizer state is kept, because its tensors depend on
    each other, as a second moment and the square of a first do. Scalars (counters), integers, booleans and
    buffers that the step only reads (masks) are kept, too. The given tensors do not change, and the result is
    deterministic.
    """
    generator = torch.Generator().manual_seed(SEED)
    changed = _updated_buffers(module)
    return {
        key: _moved(tensor, generator) if _is_to_move(key, tensor, changed) else tensor
        for key, tensor in inputs.items()
    }


def _is_to_move(key: Key, tensor: Tensor, changed: Collection[Key]) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return False
    if key[0] == "opt_state":
        return tensor.ndim > 0 and bool((tensor == tensor.flatten()[0]).all())
    return key[0] == "param" or key in changed


def _moved(tensor: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.rand(tensor.shape, generator=generator)
    moved = tensor * (1 + PART * (2 * noise - 1))
    return torch.where(tensor == 0, PART * (1 + noise) / 2, moved).to(tensor.dtype)


def _updated_buffers(module: ir.Module) -> set[Key]:
    """Return the buffers that the step updates."""
    step = find_step(module)
    if step is None or "res_attrs" not in step.attributes:
        return set()
    returned = step.regions[0].blocks[0].operations[-1].operation.operands
    pairs = zip(step.attributes["res_attrs"], returned, strict=True)
    keys = [(said["dist.role"].value, said["dist.name"].value) for said, v in pairs if not _is_argument(v)]
    return {key for key in keys if key[0] == "buffer"}


def _is_argument(value: ir.Value) -> bool:
    return isinstance(value.owner, ir.Block)
