"""Plans for ``parallelize_module``: placements are DTensor's own, steps equal, and the rest is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from titan import SEQUENCE_PLAN, TENSOR_PLAN, Titan, token_loss, tokens
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

import shardc
from shardc.diagnostics.base import ShardcError
from shardc.diagnostics.styles import (
    LayoutRefused,
    PatternMatchesNoModule,
    StyleNotForModule,
    StylesDisagree,
    UnknownStyle,
)
from shardc.step.compile_step import CompiledStep
from shardc.step.foreign.torch_styles import torch_cuts

PLANS = {"tensor": TENSOR_PLAN, "sequence": SEQUENCE_PLAN}


@pytest.fixture
def two_ranks() -> Iterator[DeviceMesh]:
    """A mesh of two ranks, of which this process is the first; nothing is sent."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (2,), mesh_dim_names=("tensor",))
    finally:
        dist.destroy_process_group()


def compile_titan(plan: object, mesh: dict[str, int], **options: object) -> CompiledStep:
    model = Titan()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = (tokens(),)
    return shardc.compile_step(
        model, optimizer, batch, loss=token_loss, mesh=mesh, plan=plan, fuse=False, **options
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PLANS)
def test_placements_are_those_of_parallelize_module(name: str, two_ranks: DeviceMesh) -> None:
    """Of each parameter, from the same mapping."""
    model = parallelize_module(Titan(), two_ranks, PLANS[name])
    expected = {
        n: p.placements[0] if isinstance(p, DTensor) else Replicate() for n, p in model.named_parameters()
    }
    assert sum(isinstance(p, Shard) for p in expected.values()) == 2 * 4 + 2 * 3 + 2 * 3 + 2
    dist.destroy_process_group()  # a compile would ask it for the mesh
    try:
        entries = compile_titan(PLANS[name], {"tensor": 2}).compiled.plan.entries
    finally:
        dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    assert {n: _placement(entries["param", n].dims) for n in expected} == expected


def _placement(dims: tuple[tuple[str, ...], ...]) -> Placement:
    cut = [dim for dim, axes in enumerate(dims) if axes == ("tensor",)]
    return Shard(cut[0]) if cut else Replicate()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", PLANS)
def test_steps_are_equal(name: str) -> None:
    """Losses, gradients and state in f64, to 1e-9."""
    step = compile_titan(PLANS[name], {"tensor": 2})
    outcome = step.check()
    assert outcome.passed, outcome.render()
    entries = step.compiled.plan.entries
    assert bool(entries["input", "0"].refine) == (name == "sequence")


@pytest.mark.slow
def test_sequence_layouts_scatter_and_gather() -> None:
    """``Shard(1)`` is honoured: sums between regions are reduce-scatters, not all-reduces."""
    kinds = {name: _kinds(compile_titan(plan, {"tensor": 2})) for name, plan in PLANS.items()}
    assert "reduce_scatter" not in kinds["tensor"]
    assert {"reduce_scatter", "all_gather"} <= kinds["sequence"]


def _kinds(step: CompiledStep) -> set[str]:
    text = step.compiled.levels["3-rank"]
    return {kind for kind in ("all_reduce", "all_gather", "reduce_scatter") if f"dist.{kind}" in text}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("terms", "mesh", "options"),
    [
        ("zero3:fsdp*tensor:tp", {"fsdp": 2, "tp": 2}, {}),
        ("data*tensor", {"data": 2, "tensor": 2}, {}),
        ("pipeline*tensor", {"pipe": 2, "tensor": 2}, {"micro_batches": 2}),
    ],
    ids=["zero3", "data", "pipeline"],
)
def test_plan_joins_presets(terms: str, mesh: dict[str, int], options: dict[str, int]) -> None:
    step = compile_titan({terms: TENSOR_PLAN}, mesh, **options)
    assert step.compiled.plan.text == terms
    tensor_axis = [*mesh][1]
    entries = step.compiled.plan.entries
    assert entries["param", "output.weight"].dims == ((tensor_axis,), ())
    assert entries["param", "norm.weight"].dims == ((),)
    outcome = step.check()
    assert outcome.passed, outcome.render()


def test_sizes_that_do_not_divide() -> None:
    """16 columns over 3 ranks: as DTensor does, 6, 6 and 4."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = (torch.randn(6, 8),)
    step = shardc.compile_step(
        model, optimizer, batch, loss=lambda out, _: out.square().mean(), mesh={"tensor": 3}, plan=plan
    )
    assert step.check().passed
    assert step.compiled.plan.entries["param", "0.weight"].dims == (("tensor",), ())


class Other(ParallelStyle):
    """A style of a user."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return module


class Scaled(ColwiseParallel):
    """A subclass, which may do anything."""


REFUSED: dict[str, tuple[dict[str, ParallelStyle], type[ShardcError], tuple[str, ...]]] = {
    "other": ({"norm": Other()}, UnknownStyle, ("'norm'", "'Other'", "ColwiseParallel, RowwiseParallel")),
    "subclass": ({"output": Scaled()}, UnknownStyle, ("'Scaled'",)),
    "no match": (
        {"layers.*.attention.wz": ColwiseParallel()},
        PatternMatchesNoModule,
        ("layers.*.attention.wz", "ColwiseParallel", "attention.w"),
    ),
    "norm": ({"norm": ColwiseParallel()}, StyleNotForModule, ("'norm'", "LayerNorm")),
    "list": ({"layers": RowwiseParallel()}, StyleNotForModule, ("'layers'", "ModuleList")),
    "batch": (
        {"output": ColwiseParallel(input_layouts=Shard(0))},
        LayoutRefused,
        ("input_layouts=Shard(dim=0)", "batch"),
    ),
    "partial": (
        {"output": RowwiseParallel(output_layouts=Partial())},
        LayoutRefused,
        ("output_layouts=Partial",),
    ),
    "sequence dim": ({"norm": SequenceParallel(sequence_dim=2)}, LayoutRefused, ("sequence_dim",)),
    "input": (
        {"norm": PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate())},
        LayoutRefused,
        ("input_layouts",),
    ),
    "keyword": (
        {
            "norm": PrepareModuleInput(
                input_kwarg_layouts={"x": Replicate()}, desired_input_kwarg_layouts={"x": Shard(0)}
            )
        },
        LayoutRefused,
        ("desired_input_kwarg_layouts",),
    ),
    "output": (
        {"norm": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(3))},
        LayoutRefused,
        ("desired_output_layouts",),
    ),
    "both": (
        {
            "norm": PrepareModuleInputOutput(
                input_layouts=(Shard(1),),
                desired_input_layouts=(Replicate(),),
                output_layouts=Replicate(),
                desired_output_layouts=Shard(0),
            )
        },
        LayoutRefused,
        ("desired_output_layouts=Shard(dim=0)",),
    ),
    "twice": ({"output": ColwiseParallel(), "outpu?": RowwiseParallel()}, StylesDisagree, ("output.weight",)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    """By name: the pattern, the style, the line that gives the plan."""
    plan, error, texts = REFUSED[name]
    with pytest.raises(error) as raised:
        torch_cuts(Titan(), plan, "train.py:7")
    for text in (*texts, "train.py:7"):
        assert text in str(raised.value)


def test_tied_weights_are_one_parameter() -> None:
    model = Titan()
    model.output.weight = model.tok_embeddings.weight
    both = {"tok_embeddings": RowwiseParallel(), "output": ColwiseParallel()}
    assert torch_cuts(model, both, "").dims == {"tok_embeddings.weight": 0}
    with pytest.raises(StylesDisagree, match=r"tok_embeddings\.weight"):
        torch_cuts(model, {**both, "tok_embeddings": ColwiseParallel()}, "")


def test_error_gives_the_line_of_the_call() -> None:
    with pytest.raises(PatternMatchesNoModule, match=r"test_torch_styles\.py:\d+"):
        compile_titan({"outptu": ColwiseParallel()}, {"tensor": 2})
