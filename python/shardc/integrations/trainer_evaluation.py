"""Evaluation of a ``Trainer`` by programs in eval mode over a step's sharded weights."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from shardc.integrations.sharded_calls import gathered
from shardc.runtime.torch_private import pytree
from shardc.step.compile_step import CompiledStep


class ShardedForward(nn.Module):
    """Stands for the model in a ``Trainer``'s evaluation: a call runs ``step.forward`` and gathers it.

    It has no parameters: the weights stay where the step has them.
    """

    def __init__(self, step: CompiledStep, model: nn.Module) -> None:
        super().__init__()
        self._step = step
        self._name = type(model).__name__

    def forward(self, **batch: Any) -> Any:
        """The model's output on a global batch, each tensor whole on each rank."""
        return pytree.tree_map(gathered, self._step.forward(batch))

    def _get_name(self) -> str:
        """The model's class, by which ``Trainer`` knows how labels are shifted."""
        return self._name


def numbers_of(outputs: dict[str, Tensor]) -> dict[str, float]:
    """Those of a step's outputs that are numbers."""
    return {name: value.item() for name, value in outputs.items() if not value.dim()}
