"""Trainer of torchtitan's Llama 3, plain or with its own sharding; writes losses and weights.

torchtitan_worker.py WRITTEN DEGREES: JSON of degrees as in ``{"dp_shard": 2, "tp": 2}``; ``null`` for plain.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchtitan.distributed import ParallelDims
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry
from torchtitan.models.llama3.sharding import set_llama3_sharding_config

STEPS = 4


def new_model() -> nn.Module:
    """Two layers of its debug model, with SDPA, which ``model_registry`` does not offer."""
    config = model_registry("debugmodel").model
    del config.layers[2:]
    for layer in config.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    set_llama3_sharding_config(config, enable_sp=False)
    torch.manual_seed(0)
    model = config.build()
    model.init_weights()
    return model


def loss(output: Tensor, batch: tuple[Tensor]) -> Tensor:
    return F.cross_entropy(output[:, :-1].flatten(0, 1), batch[0][:, 1:].flatten())


def main(written: str, degrees: str) -> None:
    model, wanted = new_model(), json.loads(degrees)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    batches = [(torch.randint(0, 64, (4, 16), generator=generator),) for _ in range(STEPS)]
    losses = []
    if wanted is None:
        for batch in batches:
            found = loss(model(*batch), batch)
            found.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(found.item())
        weights = model.state_dict()
    else:
        import shardc
        from shardc.integrations import torchtitan_layout

        given = {"dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 1, "pp": 1, "ep": 1, **wanted}
        dims = ParallelDims(**given, world_size=int(os.environ["WORLD_SIZE"]))
        mesh, plan = torchtitan_layout(model, dims)
        step = shardc.compile_step(model, optimizer, batches[0], loss=loss, mesh=mesh, plan=plan)
        losses = [step(batch).item() for batch in batches]
        weights = {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}
    if os.environ.get("RANK", "0") == "0":
        names = ("layers.0.attention.wo.weight", "layers.1.feed_forward.w1.weight", "norm.weight")
        rows = {name: weights[name].flatten()[:200].tolist() for name in names}
        Path(written).write_text(json.dumps({"losses": losses, **rows}))


if __name__ == "__main__":
    main(*sys.argv[1:])
