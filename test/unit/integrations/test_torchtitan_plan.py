"""``torchtitan_layout`` on torchtitan's own Llama 3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel

import shardc.integrations
from shardc.diagnostics.integrations import TrainerArgumentRefused

NEEDS = "needs torchtitan: pip install --no-deps -r requirements-torchtitan.lock"
llama3 = pytest.importorskip("torchtitan.models.llama3", reason=NEEDS, exc_type=ImportError)
sharding = pytest.importorskip("torchtitan.models.llama3.sharding", reason=NEEDS)
attention = pytest.importorskip("torchtitan.models.common.attention", reason=NEEDS)
ParallelDims = pytest.importorskip("torchtitan.distributed", reason=NEEDS).ParallelDims
plans = pytest.importorskip("shardc.integrations.torchtitan_plan", reason=NEEDS)


def new_model(enable_sp: bool = False) -> nn.Module:
    """One layer of its debug model, with SDPA, which ``model_registry`` does not offer."""
    config = llama3.model_registry("debugmodel").model
    del config.layers[1:]
    config.layers[0].attention.inner_attention = attention.ScaledDotProductAttention.Config()
    sharding.set_llama3_sharding_config(config, enable_sp=enable_sp)
    torch.manual_seed(0)
    model = config.build()
    model.init_weights()
    return model


def dims(**degrees: int) -> Any:
    given = {"dp_replicate": 1, "dp_shard": 1, "cp": 1, "tp": 1, "pp": 1, "ep": 1, **degrees}
    world = given["dp_replicate"] * given["dp_shard"] * given["cp"] * given["tp"] * given["pp"]
    return ParallelDims(**given, world_size=world)


def test_styles_are_those_of_the_models_own_configuration() -> None:
    found = {
        path.removeprefix("layers.0."): type(style)
        for path, style in plans.tensor_styles(new_model()).items()
    }
    rows = {"tok_embeddings", "attention.wo", "feed_forward.w2"}
    assert {path for path, style in found.items() if style is RowwiseParallel} == rows
    assert {found[name] for name in ("feed_forward.w1", "feed_forward.w3", "lm_head")} == {ColwiseParallel}
    assert SequenceParallel not in found.values()
    along = plans.tensor_styles(new_model(enable_sp=True))
    assert isinstance(along["layers.0.ffn_norm"], SequenceParallel)


@pytest.mark.parametrize(
    ("degrees", "mesh", "text"),
    [
        ({"dp_shard": 2}, {"fsdp": 2}, "zero3:fsdp"),
        ({"dp_replicate": 2, "dp_shard": 2}, {"dp_replicate": 2, "fsdp": 2}, "data:dp_replicate*zero3:fsdp"),
        ({"dp_shard": 2, "tp": 2}, {"fsdp": 2, "tp": 2}, "zero3:fsdp*tensor:tp"),
    ],
)
def test_degrees_are_axes_and_presets(degrees: dict[str, int], mesh: dict[str, int], text: str) -> None:
    found, plan = shardc.integrations.torchtitan_layout(new_model(), dims(**degrees))
    assert found == mesh
    assert not isinstance(plan, Path)
    assert (plan if isinstance(plan, str) else [*plan]) == (text if isinstance(plan, str) else [text])


def test_context_parallelism_is_refused_by_name() -> None:
    with pytest.raises(TrainerArgumentRefused, match="cp=2 is not supported"):
        shardc.integrations.torchtitan_layout(new_model(), dims(cp=2))


@pytest.mark.slow
def test_a_step_of_its_llama_is_the_single_device_step() -> None:
    model = new_model()
    tokens = torch.randint(0, 64, (4, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(output: Tensor, batch: tuple[Tensor]) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), batch[0].flatten())

    mesh, plan = shardc.integrations.torchtitan_layout(model, dims(dp_shard=2, tp=2))
    step = shardc.compile_step(model, optimizer, (tokens,), loss=loss, mesh=mesh, plan=plan, fuse=False)
    proof = step.check(steps=1)
    assert proof.passed, proof.render()
