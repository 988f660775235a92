"""Evaluation of a ``Trainer`` with programs in eval mode on a step's sharded weights."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from shardc.integrations.sharded_calls import gathered
from shardc.runtime.torch_private import pytree
from shardc.step.compile_step import CompiledStep


class ShardedForward(nn.Module):
    """Replacement of a ``Trainer``'s model in evaluation: runs ``step.forward`` and gathers the result.

    It has no parameters: the weights stay in the step.
    """

    def __init__(self, step: CompiledStep, model: nn.Module) -> None:
        super().__init__()
        self._step = step
        self._name = type(model).__name__

    def forward(self, **batch: Any) -> Any:
        """Return the model's output on a global batch, with whole tensors on each rank."""
        return pytree.tree_map(gathered, self._step.forward(batch))

    def _get_name(self) -> str:
        """Return the model's class name, by which ``Trainer`` knows how labels are shifted."""
        return self._name


def numbers_of(outputs: dict[str, Tensor]) -> dict[str, float]:
    """Return the outputs of a step that are 0-d, as numbers."""
    return {name: value.item() for name, value in outputs.items() if not value.dim()}
