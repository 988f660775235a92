"""Experts on devices of their own: rows go there and back, equal to one device in f64.

By stochastic gradient descent, whose updates show how large gradients are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache, partial

import pytest
import torch
import transformers as hf
from models import SMALL, Training, sgd, tokens
from pipelines import PipelineRanks, check_ranks
from torch import Tensor, nn
from torch.nn import functional as F
from torch_mlir import ir
from training import Captured, capture, check_equal, train_eagerly

from shardc.cost.work import flops
from shardc.diagnostics.passes.plan import ExpertsNotDivided, NoExperts
from shardc.dialects.aten.call import CallReader, target_name
from shardc.dialects.aten.types import read_type
from shardc.options.experts import Experts
from shardc.passes.manager.program import program_blocks
from shardc.runtime.errors import ExpertOverflow
from shardc.step.shard import Compiled

LAYERS, BATCH, LENGTH, WIDTH, INNER, CHOSEN = 2, 8, 16, 32, 64, 2


def _by_loops(model: nn.Module) -> nn.Module:
    """The model with each expert called by itself where it is not traced: grouped products have no f64."""
    model.set_experts_implementation("eager")
    return model


def _mixtral(experts: int, balanced: bool = True) -> nn.Module:
    """``balanced``: with the loss that balances experts, which mixes the samples of a batch."""
    config = hf.MixtralConfig(
        **SMALL,
        intermediate_size=INNER,
        num_key_value_heads=2,
        num_local_experts=experts,
        num_experts_per_tok=CHOSEN,
        output_router_logits=balanced,
    )
    return _by_loops(hf.MixtralForCausalLM(config))


def _deepseek() -> nn.Module:
    """Groups of experts, shared ones beside them, and latent attention."""
    config = hf.DeepseekV3Config(
        vocab_size=64,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        n_routed_experts=8,
        num_experts_per_tok=3,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
    )
    return _by_loops(hf.DeepseekV3ForCausalLM(config))


def _gpt_oss() -> nn.Module:
    """Matrices [experts, rows, columns] that are not turned, biases, and a gate of its own."""
    config = hf.GptOssConfig(
        **SMALL,
        intermediate_size=16,
        head_dim=8,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
    )
    return _by_loops(hf.GptOssForCausalLM(config))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mixtral of 4": partial(_mixtral, 4),
    "mixtral of 8": partial(_mixtral, 8),
    "mixtral in stages": partial(_mixtral, 4, balanced=False),
    "deepseek": _deepseek,
    "gpt-oss": _gpt_oss,
}
MESHES: dict[str, tuple[dict[str, int], int]] = {
    "expert": ({"expert": 2}, 1),
    "expert*data": ({"expert": 2, "data": 2}, 1),
    "zero2*expert": ({"data": 2, "ep": 2}, 1),
    "zero3*expert": ({"data": 2, "expert": 2}, 2),
    "expert*tensor": ({"expert": 2, "tensor": 2}, 1),
    "pipeline*expert": ({"pipe": 2, "expert": 2}, 4),
}
"""Plan -> mesh and micro-batches."""
CASES = [("mixtral of 4", plan) for plan in MESHES if "pipeline" not in plan]
CASES += [("mixtral in stages", "pipeline*expert")]
CASES += [("mixtral of 8", "expert*data"), ("deepseek", "expert"), ("gpt-oss", "expert")]


def _training(name: str) -> Training:
    return Training(MODELS[name], tokens, sgd)


@cache
def _captured(name: str) -> Captured:
    return capture(_training(name))


@cache
def _trained(name: str) -> list[dict[tuple[str, str], Tensor]]:
    return train_eagerly(_training(name), 2)


def _check(name: str, compiled: Compiled) -> None:
    step, training, wanted = _captured(name), _training(name), _trained(name)
    if compiled.pipeline_module is None:
        check_equal(step, compiled, training, wanted)
    else:
        check_ranks(PipelineRanks(step, compiled.program), training.batches(len(wanted)), wanted)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "plan"), CASES)
def test_equals_one_device(name: str, plan: str) -> None:
    mesh, micro_batches = MESHES[plan]
    _check(name, _captured(name).compile(mesh, plan, micro_batches))


def _moved(module: ir.Module) -> Counter[tuple[str, int]]:
    """Kind and bytes of the operand of each collective."""
    found: Counter[tuple[str, int]] = Counter()
    for op in (o.operation for block in program_blocks(module) for o in block.operations):
        if op.name in ("dist.all_to_all", "dist.all_gather"):
            type_ = read_type(op.operands[0].type)
            assert type_ is not None
            found[op.name, type_.size_bytes] += 1
    return found


@pytest.mark.parametrize("ways", [2, 4])
def test_rows_travel_once_each_way(ways: int) -> None:
    """Four exchanges of rows a layer, two of them forward, and one of their experts' numbers; no gather.

    Each has room for all rows of a device at every other: ways * rows * width elements, of which
    (ways - 1) / ways are sent.
    """
    compiled = _captured("mixtral of 4").compile({"expert": ways}, "expert")
    rows = BATCH * LENGTH * CHOSEN // ways
    slots = ways * rows
    assert _moved(compiled.rank_module) == {
        ("dist.all_to_all", 8 * slots * WIDTH): 4 * LAYERS,
        ("dist.all_to_all", 8 * slots): LAYERS,
    }


def test_a_capacity_sends_less() -> None:
    """Room for twice an equal share: of 4 devices, half of all rows; work is still that of all rows."""
    ways, capacity = 4, 2.0
    compiled = _captured("mixtral of 4").compile({"expert": ways}, "expert", experts=Experts(capacity))
    slots = capacity * BATCH * LENGTH * CHOSEN / ways
    assert _moved(compiled.rank_module)["dist.all_to_all", 8 * slots * WIDTH] == 4 * LAYERS
    assert _expert_flops(compiled.rank_module) == _expert_flops(compiled.global_module) / ways
    _check("mixtral of 4", compiled)


def test_rows_beyond_the_capacity_stop_the_step() -> None:
    compiled = _captured("mixtral of 4").compile({"expert": 4}, "expert", experts=Experts(1.0))
    with pytest.raises(ExpertOverflow, match=r"have room for 16(?s:.)*raise expert_capacity"):
        _check("mixtral of 4", compiled)


@pytest.mark.slow
def test_biases_are_added_where_the_experts_are() -> None:
    moved = _moved(_captured("gpt-oss").compile({"expert": 2}, "expert").rank_module)
    assert sum(count for (kind, _), count in moved.items() if kind == "dist.all_to_all") == 5 * LAYERS


def _expert_flops(module: ir.Module) -> float:
    ops = (o.operation for block in program_blocks(module) for o in block.operations)
    names, reader = ("shardc.expert_mm", "shardc.expert_outer"), CallReader()
    return sum(flops(reader.read(op).spec) for op in ops if target_name(op) in names)


@pytest.mark.parametrize("ways", [2, 4])
def test_a_device_computes_its_part(ways: int) -> None:
    compiled = _captured("mixtral of 4").compile({"expert": ways}, "expert")
    one = _expert_flops(compiled.global_module)
    matrices = 3 * WIDTH * INNER  # gate, up and down
    assert one == 3 * LAYERS * 2 * BATCH * LENGTH * CHOSEN * matrices
    assert _expert_flops(compiled.rank_module) == one / ways
    assert compiled.work.share == pytest.approx(1 / ways)


def test_without_a_mesh_no_row_has_a_matrix_of_its_own() -> None:
    text = str(_captured("mixtral of 4").compile({"data": 1}, "data").global_module)
    assert "aten.bmm" not in text and "shardc.expert_mm" in text
    assert not re.search(rf"<\[{BATCH * LENGTH * CHOSEN},\d+,\d{{2,}}\]", text)


class _Switch(nn.Module):
    """One expert for each row, chosen by hand; the first product is the row's times its expert's matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(4, 6, 10) / 4)
        self.down = nn.Parameter(torch.randn(4, 10, 6) / 4)

    def forward(self, x: Tensor, kinds: Tensor) -> Tensor:
        hidden = F.gelu(torch.bmm(x.unsqueeze(1), self.up[kinds]))
        return torch.bmm(hidden, self.down[kinds]).squeeze(1).square().sum()


def test_experts_are_found_by_dataflow() -> None:
    batch = lambda: (torch.randn(24, 6), torch.randint(0, 4, (24,)))  # noqa: E731
    training = Training(_Switch, batch, sgd, lambda output, _: output)
    step = capture(training)
    compiled = step.compile({"expert": 4}, "expert")
    assert {dims.dims for key, dims in compiled.plan.entries.items() if key[0] == "param"} == {
        (("expert",), (), ())
    }
    check_equal(step, compiled, training, train_eagerly(training, 2))


def test_rows_that_blocks_do_not_divide_stay_where_they_are() -> None:
    batch = lambda: (torch.randn(9, 6), torch.randint(0, 4, (9,)))  # noqa: E731
    training = Training(_Switch, batch, sgd, lambda output, _: output)
    step = capture(training)
    compiled = step.compile({"expert": 2}, "expert")
    assert any(
        r.name == "NotDispatched" and "9 rows in 2 blocks, or 4 experts on 2 devices, do not divide" in str(r)
        for r in compiled.remarks
    )
    check_equal(step, compiled, training, train_eagerly(training, 2))


def test_experts_that_an_axis_does_not_divide() -> None:
    with pytest.raises(ExpertsNotDivided, match=r"4 experts of .* expert=3(?s:.)*nearest is 2"):
        _captured("mixtral of 4").compile({"expert": 3}, "expert")


def test_a_model_without_experts() -> None:
    step = capture(Training(lambda: nn.Linear(4, 4), lambda: (torch.randn(4, 4),), sgd, lambda o, _: o.sum()))
    with pytest.raises(NoExperts, match="found no experts"):
        step.compile({"expert": 2}, "expert")
