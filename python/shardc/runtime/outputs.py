"""Outputs of a step besides its loss: DTensors on a mesh; tensors for scalars and on one device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor
from torch.distributed.tensor import DTensor

from .check import Json
from .comm.connect import Place, ensure_group
from .comm.layout import Leaf, chunked_shape
from .comm.mesh import Mesh
from .comm.placement import DeviceMeshes
from .torch_private import show


class StepResult(NamedTuple):
    """Loss and outputs of a step that was compiled with ``outputs=``.

    ``loss``: a 0-d tensor. ``outputs``: tensors by name. On several devices an output is a DTensor, with the
    sharding in which the program computes it; a 0-d output is a plain tensor, equal on all ranks.

    Example:
        >>> outputs = {"logits": lambda output, batch: output}
        >>> step = shardc.compile_step(model, optimizer, batch, loss=loss, outputs=outputs)
        >>> value, made = step(batch)
        >>> made["logits"].shape
        torch.Size([8, 4])
    """

    loss: Tensor | Any
    outputs: dict[str, Tensor]


Result = Tensor | Any
"""Result of a step: its loss, or a :class:`StepResult` if it has outputs. The type is ``Any`` instead of the
latter, so that type checkers treat the result as the loss, which is right in nearly all scripts.
"""


class Outputs:
    """Outputs among a manifest's ``results``. All ranks must construct and call it together."""

    def __init__(self, results: Iterable[Json], mesh: Mesh, place: Place) -> None:
        self._leaves = [Leaf.read(entry) for entry in results if entry["role"] == "output"]
        self._mesh, self._rank = mesh, place.rank
        self._meshes: DeviceMeshes | None = None
        if mesh.world_size > 1 and any(leaf.shape for leaf in self._leaves):
            ensure_group(place.timeout)
            self._meshes = DeviceMeshes(mesh, place.device.type, self._leaves)

    def __bool__(self) -> bool:
        return bool(self._leaves)

    def result(self, made: Sequence[Tensor]) -> Result:
        """Convert a program's results for the caller. A forward without a loss has None as its loss."""
        blocks = made[len(made) - len(self._leaves) :]
        loss = made[0] if len(made) > len(blocks) else None
        return StepResult(loss, self.named(blocks)) if self._leaves else loss

    def named(self, blocks: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the outputs by name, from this rank's ``blocks`` in the order of the results."""
        pairs = zip(self._leaves, blocks, strict=True)
        return {leaf.name: self._shown(leaf, block.detach()) for leaf, block in pairs}

    def _shown(self, leaf: Leaf, block: Tensor) -> Tensor:
        if self._meshes is None or not leaf.shape:
            return block[tuple(map(slice, leaf.shape))]
        placed = self._meshes.of(leaf)
        if not leaf.is_chunked(self._mesh):
            whole = DTensor.from_local(block, *placed, run_check=False).full_tensor()
            leaf = replace(leaf, padded=chunked_shape(leaf, self._mesh))
            block = whole[leaf.slices(self._mesh, self._rank)].contiguous()
        held = block[tuple(map(slice, leaf.held_shape(self._mesh, self._rank)))]
        whole = held.new_empty(leaf.shape, device="meta")
        made = DTensor.from_local(held, *placed, run_check=False, shape=whole.shape, stride=whole.stride())
        show(held, made)
        return made
