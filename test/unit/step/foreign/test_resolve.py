"""Plans that ``transformers`` models ship: tensors, experts, stages, and refused entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from titan import TENSOR_PLAN, Titan, token_loss, tokens
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

import shardc
from shardc.diagnostics.styles import (
    BadStagePlan,
    MixedPlan,
    NoPlanOfModel,
    PatternMatchesNoModule,
    PlanHasNoPreset,
    UnknownStyle,
)
from shardc.passes.plan.named_styles import NAMED_STYLES
from shardc.step.compile_step import CompiledStep

SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=4)),
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            **SIZES,
            num_key_value_heads=2,
            head_dim=4,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=8,
        )
    ),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**SIZES)),
}


def make(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    return MODELS[name]()


def compile_model(model: PreTrainedModel, plan: object, mesh: dict[str, int], **more: object) -> CompiledStep:
    ids = tokens()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = {"input_ids": ids, "labels": ids}
    return shardc.compile_step(model, optimizer, batch, mesh=mesh, plan=plan, fuse=False, **more)


def dims_of(step: CompiledStep) -> dict[str, int]:
    """Parameter -> the dim that the plan cuts."""
    entries = step.compiled.plan.entries.items()
    cut = {
        name: [d for d, axes in enumerate(e.dims or ()) if axes]
        for (role, name), e in entries
        if role == "param"
    }
    return {name: dims[0] for name, dims in cut.items() if dims}


@pytest.fixture
def fake_mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    finally:
        dist.destroy_process_group()


def test_styles_of_5_23_are_known() -> None:
    """All, and no others."""
    assert {*NAMED_STYLES} == {*ALL_PARALLEL_STYLES.keys()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "name",
    ["llama", "gpt_neox", *(pytest.param(n, marks=pytest.mark.slow) for n in ("mixtral", "qwen3_moe"))],
)
def test_tp_plan_as_input(name: str) -> None:
    """``plan=model.tp_plan`` is ``plan="tensor"``, and equal to eager."""
    model = make(name)
    step = compile_model(model, model.tp_plan, {"tensor": 2})
    assert dims_of(step) == dims_of(compile_model(make(name), "tensor", {"tensor": 2}))
    outcome = step.check()
    assert outcome.passed, outcome.render()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", MODELS)
def test_tp_plan_cuts_what_transformers_cuts(name: str, fake_mesh: DeviceMesh) -> None:
    """Its own ``shard_param`` on each parameter of the plan, and ours, cut the same dims."""
    model = make(name)
    plan = model._expand_parallel_plan(model.tp_plan)
    for key, style in plan.items():
        owner, _, leaf = key.rpartition(".")
        if key in dict(model.named_parameters()):
            ALL_PARALLEL_STYLES[style].shard_param(model.get_submodule(owner), leaf, fake_mesh)
    expected = {
        n: p.placements[0].dim % p.ndim
        for n, p in model.named_parameters()
        if isinstance(p, DTensor) and hasattr(p.placements[0], "dim") and p.ndim > 1
    }
    assert expected, name
    dist.destroy_process_group()
    try:
        fresh = make(name)
        assert dims_of(compile_model(fresh, fresh.tp_plan, {"tensor": 2})) == expected
    finally:
        dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe"])
def test_ep_plan(name: str) -> None:
    """Experts lie on their devices; ``plan=model.ep_plan`` says the same as the preset."""
    model = make(name)
    step = compile_model(model, "experts", {"experts": 2})
    experts = {n: 0 for n, p in model.named_parameters() if ".experts." in n}
    assert dims_of(step) == experts
    assert len(experts) == 4
    outcome = step.check()
    assert outcome.passed, outcome.render()
    again = make(name)
    assert dims_of(compile_model(again, again.ep_plan, {"ep": 2})) == experts


@pytest.mark.slow
def test_experts_beside_tensors_and_data() -> None:
    """The experts are the ``ep_plan``'s, the rest is the ``tp_plan``'s."""
    model = make("mixtral")
    mesh = {"data": 2, "ep": 2, "tp": 2}
    step = compile_model(model, {"data": None, "experts": model.ep_plan, "tensor": model.tp_plan}, mesh)
    entries = step.compiled.plan.entries
    assert step.compiled.plan.text == "data*experts*tensor"
    assert entries["param", "model.layers.0.mlp.experts.down_proj"].dims == (("ep",), (), ())
    assert entries["param", "model.layers.0.self_attn.q_proj.weight"].dims == (("tp",), ())
    assert entries["input", "input_ids"].dims == (("data",), ())
    outcome = step.check()
    assert outcome.passed, outcome.render()


@pytest.mark.slow
def test_pp_plan() -> None:
    """Stages start at layers, and what flows is said."""
    model = make("llama")
    plan = {"pipeline": model.pp_plan}
    step = compile_model(model, plan, {"pipe": 2}, micro_batches=2)
    (said,) = (r for r in step.compiled.remarks if r.name == "StagesOfModel")
    assert said.message == (
        "the model's own plan sets the stages: they begin at model.layers.1 and receive hidden_states"
    )
    assert "test_resolve.py" in (said.where or "")
    named = compile_model(make("llama"), "pipeline", {"pipe": 2}, micro_batches=2, stages=["model.layers.1"])
    assert step.compiled.levels["3-pipeline"] == named.compiled.levels["3-pipeline"]
    outcome = step.check()
    assert outcome.passed, outcome.render()


@pytest.mark.slow
def test_patterns_of_a_models_own_plan_that_match_nothing_are_remarked() -> None:
    """Qwen3-MoE ships rules for dense layers that this model does not have."""
    step = compile_model(make("qwen3_moe"), "tensor", {"tensor": 2})
    unused = [r.message for r in step.compiled.remarks if r.name == "PatternUnused"]
    assert len(unused) == 3
    assert "mlp.gate_proj" in unused[0]


def compile_titan(
    plan: object, mesh: dict[str, int], model: nn.Module | None = None, **more: object
) -> CompiledStep:
    model = model or Titan()
    optimizer, batch = torch.optim.SGD(model.parameters()), (tokens(),)
    return shardc.compile_step(
        model, optimizer, batch, loss=token_loss, mesh=mesh, plan=plan, fuse=False, **more
    )


LAYERS = {"layers": (["x"], ["x"])}
REFUSED = {
    "unknown": (
        {"output": "colwize"},
        UnknownStyle,
        ("'output'", "did you mean 'colwise'", "rowwise_split_input"),
    ),
    "no match": ({"outputs": "colwise"}, PatternMatchesNoModule, ("'outputs'", "colwise", "output")),
    "mixed": ({"output": ColwiseParallel(), "norm.weight": [None]}, MixedPlan, ("shardings and styles",)),
    "no taker": ({"data": TENSOR_PLAN}, PlanHasNoPreset, ("'data'", "tensor or sequence")),
    "twice": ({"tensor": TENSOR_PLAN, "sequence:data": TENSOR_PLAN}, PlanHasNoPreset, ("sequence:data",)),
    "no experts": ("experts", NoPlanOfModel, ("Titan", "ep_plan")),
    "few layers": ({"pipeline:data": LAYERS}, BadStagePlan, ("4 stages", "2 layers")),
    "no flow": ({"pipeline:data": {"layers": (["x"], ["y"])}}, BadStagePlan, ("gives y and takes x",)),
    "no layers": ({"pipeline:data": {"norm": (["x"], ["x"])}}, BadStagePlan, ("list of layers",)),
    "not stages": ({"pipeline:data": {"layers": ["x"]}}, BadStagePlan, ("two lists",)),
    "no stage": ({"pipeline:data": {"blocks": (["x"], ["x"])}}, PatternMatchesNoModule, ("'blocks'",)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    """By name and with the line of the call."""
    plan, error, texts = REFUSED[name]
    more = {"micro_batches": 2} if "pipeline:data" in plan else {}
    with pytest.raises(error) as raised:
        compile_titan(plan, {"data": 4, "tensor": 2, "experts": 1}, **more)
    for text in (*texts, *(() if name == "no experts" else ("test_resolve.py:",))):
        assert text in str(raised.value)


@pytest.mark.slow
def test_unknown_style_that_a_model_ships() -> None:
    """The error gives the line of the model's class."""
    model = Titan()
    model.tp_plan = {"output": "colwise_2027"}
    with pytest.raises(UnknownStyle, match=r"titan\.py:\d+"):
        compile_titan("tensor", {"tensor": 2}, model)
    compile_titan("data", {"data": 2}, model)
