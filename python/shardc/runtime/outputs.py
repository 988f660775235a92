"""What a step returns besides its loss: on a mesh as DTensors, scalars and those of one device as tensors."""

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

    ``loss`` is 0-d; ``outputs`` are by name. An output of a step on several devices is a DTensor with the
    layout in which the program makes it; one without dims is a tensor, the same on all ranks.

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
"""What a step returns: its loss, or a :class:`StepResult` if it has outputs. ``Any`` instead of that lets
type checkers take the result for the loss, which it is in nearly all scripts.
"""


class Outputs:
    """The outputs among a manifest's ``results``. All ranks make it, and call it, together."""

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
        """What a program's results are to its caller. A forward without a loss has None in its place."""
        blocks = made[len(made) - len(self._leaves) :]
        loss = made[0] if len(made) > len(blocks) else None
        return StepResult(loss, self.named(blocks)) if self._leaves else loss

    def named(self, blocks: Sequence[Tensor]) -> dict[str, Tensor]:
        """The outputs by name, of this rank's ``blocks`` in the order of the results."""
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
