"""PyTorch's own transformer layers: micro-batches and devices do not wait for each other in them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import shardc
from shardc.report.traffic import transfers
from shardc.step.compile_step import CompiledStep


class Encoder(nn.Module):
    """PyTorch's own layers, with dropout, and a choice by ``gumbel_softmax``."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)
        layers = [nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True) for _ in range(2)]
        self.layers, self.gate = nn.ModuleList(layers), nn.Linear(8, 8)

    def forward(self, ids: Tensor) -> Tensor:
        x = functional.dropout(self.words(ids), 0.1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x * functional.gumbel_softmax(self.gate(x)))


def encoder_step(mesh: dict[str, int], plan: str, **how: object) -> CompiledStep:
    torch.manual_seed(0)
    model, ids = Encoder(), torch.randint(0, 20, (8, 5))

    def loss(output: Tensor, batch: tuple[Tensor]) -> Tensor:
        return functional.cross_entropy(output.flatten(0, 1), batch[0].flatten())

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return shardc.compile_step(model, optimizer, (ids,), mesh=mesh, plan=plan, loss=loss, fuse=False, **how)


def test_a_pipeline_of_encoder_layers_computes_dropout_again() -> None:
    how = {"micro_batches": 4, "recompute": "full"}
    assert encoder_step({"pipe": 2}, "pipeline", **how).check().passed


def test_encoder_layers_keep_to_their_rows_under_data_parallelism() -> None:
    """What travels are gradients and the loss: nobody needs another device's activations."""
    step = encoder_step({"data": 2}, "data")
    moved = {t.kind for t in transfers(step.compiled.rank_module)}
    assert moved == {"all_reduce"} and step.check().passed
