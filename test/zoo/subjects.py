"""Everything in the zoo by name: how to build a model, a batch for it and its loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from architectures import ARCHITECTURES, Architecture
from batches import batch_for, loss_of
from configs import LAYERS
from nets import NETS
from torch import Tensor, nn


@dataclass(frozen=True)
class Subject:
    """One model of the zoo. ``build`` gives it with random values; ``batch`` makes a random batch for it."""

    name: str
    kind: str
    build: Callable[[], nn.Module]
    batch: Callable[[nn.Module], Any]
    loss: Callable[[Any, Any], Tensor] = loss_of

    def fresh(self) -> nn.Module:
        """The model in f32 with its initial values, the same at each call."""
        torch.manual_seed(0)
        return self.build().train()

    def batches(self, model: nn.Module, count: int) -> list[Any]:
        """Batches for ``count`` steps, the same at each call."""
        torch.manual_seed(1)
        return [self.batch(model) for _ in range(count)]


def of_architecture(a: Architecture, layers: int = LAYERS, pixels: int | None = None) -> Subject:
    """A class of ``transformers`` with so many layers, for images of so many rows and columns."""

    def build() -> nn.Module:
        model = a.model_class(a.config(layers, pixels))
        if any("experts" in name for name, _ in model.named_modules()):
            model.set_experts_implementation("batched_mm")  # grouped matmuls have no f64
        return model

    return Subject(a.name, a.kind, build, lambda model: batch_for(a, model))


SUBJECTS: dict[str, Subject] = {
    **{
        name: Subject(name, "net", net.build, lambda model, net=net: net.batch())
        for name, net in NETS.items()
    },
    **{name: of_architecture(a) for name, a in ARCHITECTURES.items()},
}
"""Hand-written nets first, then the classes of ``transformers``."""
PIXELS = 128
"""Of images that are cut by rows: five halvings leave a row for each of four devices."""
HALVED = (
    *("BitForImage", "ConvNext", "Cvt", "DonutSwin", "EfficientNet", "FocalNet", "HGNet", "Hiera", "Levit"),
    *(
        "MobileNet",
        "MobileViTFor",
        "PPLCNet",
        "PoolFormer",
        "Pvt",
        "RegNet",
        "ResNet",
        "Segformer",
        "Swi",
        "TextNet",
    ),
)
"""What names of networks begin with that halve images several times."""

HALVED_AGAIN = ("Levit", "MobileViTFor")
"""What names of networks begin with of which four devices need twice as many pixels."""


def subject_on(name: str, mesh: str) -> Subject:
    """The model as it is tried on one of ``trial.CUTS``."""
    is_large = mesh.startswith("rows") or (mesh.startswith("context") and name.startswith(HALVED))
    if is_large and name in ARCHITECTURES:
        smallest = name.startswith(HALVED_AGAIN) and mesh.startswith("context")
        return of_architecture(ARCHITECTURES[name], pixels=2 * PIXELS if smallest else PIXELS)
    return SUBJECTS[name]
