"""The loss of a ``Trainer`` in the form of ``compile_step``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor, nn
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

LossFunction = Callable[[Any, Mapping[str, Any]], Tensor]


class Losses(Protocol):
    """Attributes of a ``Trainer`` that determine its loss."""

    model: nn.Module
    compute_loss_func: Callable[..., Tensor] | None
    label_smoother: Callable[..., Tensor] | None


def loss_of(trainer: Losses) -> LossFunction:
    """Return ``loss(output, batch)``: the Trainer's own function, its label smoother, or the model's loss."""
    function, smoother = trainer.compute_loss_func, trainer.label_smoother
    causal = trainer.model.__class__.__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()

    def loss(output: Any, batch: Mapping[str, Any]) -> Tensor:
        labels = batch.get("labels")
        if function is not None:
            return function(output, labels, num_items_in_batch=_items(labels, causal))
        if smoother is not None and labels is not None:
            return smoother(output, labels, shift_labels=True) if causal else smoother(output, labels)
        return output["loss"] if isinstance(output, Mapping) else output[0]

    return loss


def _items(labels: Tensor | None, causal: bool) -> Tensor | None:
    """Return the number of labels of the global batch that count."""
    if labels is None:
        return None
    return (labels[..., 1:] if causal else labels).ne(-100).sum()
