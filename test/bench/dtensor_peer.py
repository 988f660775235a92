"""The peer: the same Hugging Face Llama parallelised by hand, as torchtitan does it, with DTensor
and FSDP2.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

KINDS = ("tp", "tp+loss", "tp+loss+sp", "tp+loss+sp+compile")
"""Tensor parallelism; with the loss on vocabulary-sharded logits; with sequence parallelism between blocks;
with ``torch.compile`` on each layer, as torchtitan does it. (A meter's dispatch mode makes compiled layers
run eagerly.)
"""


class Peer:
    """A model that ``parallelise`` has changed in place, with its optimizer; call it with this
    rank's batch.
    """

    def __init__(
        self, model: Any, mesh: DeviceMesh, kind: str, optimizer: Callable[[Any], torch.optim.Optimizer]
    ) -> None:
        self._sequence = "sp" in kind
        self._loss_context = loss_parallel if "loss" in kind else nullcontext
        self.model = parallelise(model, mesh, kind)
        self.optimizer = optimizer(self.model.parameters())

    def __call__(self, ids: Tensor) -> Tensor:
        """One training step on ids [batch / data ranks, sequence]. The loss of this rank's batch, 0-d."""
        # Under sequence parallelism the embedding's result is a shard, from which the model can't tell
        # positions.
        positions = torch.arange(ids.shape[1]).unsqueeze(0)
        with self._loss_context():
            loss = self.model(input_ids=ids, labels=ids, position_ids=positions, use_cache=False).loss
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def parallelise(model: Any, mesh: DeviceMesh, kind: str) -> Any:
    """Tensor parallelism over ``mesh["tensor"]``, then FSDP2, a unit for each layer, over
    ``mesh["data"]``.
    """
    tensor, data = mesh["tensor"], mesh["data"]
    sequence = "sp" in kind
    parallelize_module(model, tensor, _edges_plan(sequence, "loss" in kind))
    for layer in model.model.layers:
        parallelize_module(layer, tensor, _layer_plan(sequence))
        if "compile" in kind:
            layer.compile()
        fully_shard(layer, mesh=data)
    return fully_shard(model, mesh=data)


def _layer_plan(sequence: bool) -> dict[str, Any]:
    between = Shard(1) if sequence else Replicate()
    plan: dict[str, Any] = {f"self_attn.{n}_proj": ColwiseParallel() for n in "qkv"}
    plan |= {f"mlp.{n}_proj": ColwiseParallel() for n in ("gate", "up")}
    plan |= {n: RowwiseParallel(output_layouts=between) for n in ("self_attn.o_proj", "mlp.down_proj")}
    if sequence:
        gather: dict[str, Any] = {"hidden_states": Shard(1)}
        whole: dict[str, Any] = {"hidden_states": Replicate()}
        plan |= {
            "input_layernorm": SequenceParallel(),
            "post_attention_layernorm": SequenceParallel(),
            "self_attn": PrepareModuleInput(input_kwarg_layouts=gather, desired_input_kwarg_layouts=whole),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        }
    return plan


def _edges_plan(sequence: bool, loss_sharded: bool) -> dict[str, Any]:
    """Embedding, last norm and head."""
    between = Shard(1) if sequence else Replicate()
    head = ColwiseParallel(
        input_layouts=between,
        output_layouts=Shard(-1) if loss_sharded else Replicate(),
        use_local_output=not loss_sharded,
    )
    plan: dict[str, Any] = {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "lm_head": head,
    }
    return plan | ({"model.norm": SequenceParallel()} if sequence else {})
