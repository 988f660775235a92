"""``memory_budget=``: the planned peak obeys it and is monotone in it, and the step computes what it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import shardc
from shardc.compiler.memory import step_peak
from shardc.diagnostics.api import BadArgument
from shardc.diagnostics.passes.recompute import BudgetAndRecompute, BudgetOfStages, BudgetTooSmall
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.spec import Capture
from shardc.passes.manager.program import copy_module
from shardc.step.compile_step import CompiledStep
from shardc.step.modules.recomputed import repeated_layers
from shardc.step.shard import capture_choices, compile_capture
from shardc.step.sharding.mesh import make_mesh
from shardc.step.within_budget import Ladder, Made, planned_peak

ONE = {"data": 1}
FEW, MANY = 4, 20
Subject = tuple[nn.Module, object, Callable[..., Tensor] | None]


class Regression(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(self.body(x), y)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.conv(x)))


def mlp() -> Subject:
    layers = [part for _ in range(3) for part in (nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))]
    x = torch.randn(512, 32)
    return Regression(nn.Sequential(*layers)), (x, torch.randn(512, 32)), lambda made, _: made


def cnn() -> Subject:
    body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *(Residual(8) for _ in range(6)))
    return Regression(body), (torch.randn(4, 3, 16, 16), torch.randn(4, 8, 16, 16)), lambda made, _: made


def language(kind: str, head: str = "ForCausalLM", **sizes: object) -> Subject:
    import transformers

    config = getattr(transformers, f"{kind}Config")(vocab_size=128, use_cache=False, **sizes)
    ids = torch.randint(128, (4, 32))
    model = getattr(transformers, f"{kind}{head}")(config)
    return model, {"input_ids": ids, "labels": ids}, None


def llama() -> Subject:
    return language("Llama", hidden_size=32, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4)


def gpt2() -> Subject:
    return language("GPT2", "LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=32)


def bert() -> Subject:
    sizes = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    return language("Bert", "ForMaskedLM", **sizes)


MODELS = {"mlp": mlp, "cnn": cnn, "llama": llama, "gpt2": gpt2, "bert": bert}


def compiled(name: str, budget: object = None, **options: object) -> CompiledStep:
    torch.manual_seed(0)
    model, batch, loss = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    given = {"mesh": ONE, "plan": "data", "fuse": False, **options}
    return shardc.compile_step(model, optimizer, batch, loss=loss, memory_budget=budget, **given)


def peak(step: CompiledStep) -> int:
    return planned_peak(step.compiled).size_bytes


@cache
def ladder(name: str, plan: str = "data", micro_batches: int = 1, **axes: int) -> Ladder[int]:
    """The planned peaks of one model's steps, which is captured once."""
    torch.manual_seed(0)
    model, batch, loss = MODELS[name]()
    noted = tuple(repeated_layers(model))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    captured = capture_step(model, optimizer, batch, loss=loss, context=new_context(), noted=noted)
    mesh = make_mesh(axes or ONE, micro_batches)

    def copy() -> Capture:
        return replace(captured, module=copy_module(captured.module))

    def make(again: frozenset[int]) -> Made[int]:
        found = step_peak(compile_capture(copy(), mesh, plan, recompute=again).program, in_calls=True)
        return Made(found.size_bytes, found)

    return Ladder(make, lambda: capture_choices(copy(), mesh, plan))


@cache
def ends(name: str, plan: str = "data", micro_batches: int = 1, **axes: int) -> tuple[int, int]:
    """The least peak, as the error names it, and the one that keeps all."""
    rungs = ladder(name, plan, micro_batches, **axes)
    with pytest.raises(BudgetTooSmall) as error:
        rungs.within(1000)
    return int(str(error.value.fields["least"])), rungs.within(1 << 50).step


def obey(name: str, count: int) -> None:
    """Peaks for that many budgets are within them and grow with them."""
    least, most = ends(name)
    sizes = [least + (most - least) * n // (count - 1) for n in range(count)]
    peaks = [ladder(name).within(size).step for size in sizes]
    assert all(found <= size for found, size in zip(peaks, sizes, strict=True))
    assert peaks == sorted(peaks)
    assert peaks[0] == least < peaks[-2] and peaks[-1] == most
    if count == MANY:
        unused = [(size - found) / (most - least) for found, size in zip(peaks, sizes, strict=True)]
        assert sum(unused) / count < 0.1


@pytest.mark.sampled(2)
@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", MODELS)
def test_peaks_obey_budgets_and_grow_with_them(name: str) -> None:
    obey(name, FEW)


@pytest.mark.slow
@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", MODELS)
def test_twenty_budgets(name: str) -> None:
    obey(name, MANY)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_the_single_device_program_and_to_the_step_that_keeps_all(name: str) -> None:
    least, most = ends(name)
    budget = (2 * least + most) // 3
    step, plain = compiled(name, budget), compiled(name)
    assert peak(step) <= budget < most == peak(plain)
    assert "[Recomputed] to stay within" in str(step.plan) and "Recomputed" not in str(plain.plan)
    proof = step.check()
    assert proof.passed, proof.render()
    torch.manual_seed(0)
    batch = MODELS[name]()[1]
    losses = [[float(which(batch)) for _ in range(3)] for which in (plain, step)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.slow
def test_kernels_are_within_too() -> None:
    least, most = ends("mlp")
    step = compiled("mlp", (least + 3 * most) // 4, fuse=True)
    assert peak(step) <= (least + 3 * most) // 4


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("mesh", "plan", "micro_batches"),
    [({"data": 2}, "zero3", 1), ({"data": 2, "tensor": 2}, "zero3*tensor", 1), ({"data": 2}, "zero2", 2)],
)
def test_plans_over_devices_and_time(mesh: dict[str, int], plan: str, micro_batches: int) -> None:
    least, most = ends("llama", plan, micro_batches, **mesh)
    step = compiled("llama", (least + most) // 2, mesh=mesh, plan=plan, micro_batches=micro_batches)
    assert least <= peak(step) <= (least + most) // 2 <= most
    proof = step.check()
    assert proof.passed, proof.render()


def test_sizes_are_numbers_or_texts() -> None:
    assert peak(compiled("mlp", "1GB")) == ends("mlp")[1]
    for wrong in ("a lot", 0, -3, True, 1.5):
        with pytest.raises(BadArgument):
            compiled("mlp", wrong)


def test_a_budget_below_the_least_names_it() -> None:
    least, _ = ends("mlp")
    with pytest.raises(BudgetTooSmall, match=f"{least:,}"):
        compiled("mlp", least - 1)


def test_what_cannot_be_asked_together() -> None:
    with pytest.raises(BudgetAndRecompute):
        compiled("mlp", "1GB", recompute="full")
    with pytest.raises(BudgetOfStages):
        compiled("mlp", "1GB", mesh={"pipe": 2}, plan="pipeline", micro_batches=2)
