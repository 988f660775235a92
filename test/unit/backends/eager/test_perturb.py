"""State that the proof starts from: wrong gathers of values that are the same everywhere are noticed."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch_mlir import ir

from shardc.backends.eager.proof.compare import compare_step, prove_step
from shardc.backends.eager.proof.perturb import PART, perturbed
from shardc.step.compile_step import CompiledStep, compile_step
from shardc.step.values import example_inputs

SHARDED = [["a", "b"]]
PLANS: dict[str, dict[str, list[list[str]]]] = {
    "a norm's weight": {"0.weight": SHARDED},
    "a norm's bias": {"0.bias": SHARDED},
}


def compiled(plan: dict[str, list[list[str]]] | str = "data:a", batch_norm: bool = False) -> CompiledStep:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8) if batch_norm else nn.LayerNorm(8)
    model = nn.Sequential(norm, nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss = lambda output, _: output.square().mean()  # noqa: E731
    batch = (torch.randn(8, 8),)
    return compile_step(model, optimizer, batch, loss=loss, mesh={"a": 2, "b": 2}, plan=plan, fuse=False)


def with_wrong_gathers(module: ir.Module) -> ir.Module:
    """Every gather over both axes joins its blocks in another order."""
    text, count = re.subn(r'(dist\.all_gather"\(\S+\) \{axes = )\["a", "b"\]', r'\1["b", "a"]', str(module))
    assert count
    return ir.Module.parse(text, module.context)


@pytest.mark.parametrize("what", PLANS)
def test_a_wrong_gather_of_what_is_the_same_everywhere_is_refused(what: str) -> None:
    step = compiled(PLANS[what])
    inputs = example_inputs(step.compiled.capture, step._optimizer, step._batch)
    whole, wrong = step.compiled.global_module, with_wrong_gathers(step.compiled.program)
    assert compare_step(whole, wrong, inputs).passed  # one step from fresh state does not see it
    assert not prove_step(whole, wrong, inputs).exact.passed
    assert step.check().passed


def test_a_momentum_of_another_parameter_is_refused() -> None:
    """In the first step from fresh state all momenta are equal."""
    step = compiled()
    inputs = example_inputs(step.compiled.capture, step._optimizer, step._batch)
    text, whole = str(step.compiled.program), step.compiled.global_module
    one, other, *_ = re.findall(r"torch\.aten\.lerp\.Tensor (%arg\d+), .*vtensor<\[8,8\],f32>", text)
    wrong = ir.Module.parse(text.replace(f"lerp.Tensor {one},", f"lerp.Tensor {other},"), whole.context)
    assert compare_step(whole, wrong, inputs).passed
    assert not prove_step(whole, wrong, inputs).exact.passed


def test_nothing_of_the_users_is_changed_and_each_run_starts_from_the_same() -> None:
    step = compiled(batch_norm=True)
    before = {name: value.clone() for name, value in step._model.state_dict().items()}
    inputs = example_inputs(step.compiled.capture, step._optimizer, step._batch)
    first, second = (perturbed(inputs, step.compiled.global_module) for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in inputs)
    assert step.check().passed
    assert all(torch.equal(value, before[name]) for name, value in step._model.state_dict().items())
    assert not step._optimizer.state


def test_what_is_perturbed_stays_legal() -> None:
    """Positive variances and second moments; counters, integers, masks and the batch as they were."""
    step = compiled(batch_norm=True)
    module = step.compiled.global_module
    inputs = example_inputs(step.compiled.capture, step._optimizer, step._batch)
    inputs["buffer", "mask"] = torch.tensor([0.0, float("-inf")])
    made = perturbed(inputs, module)
    moved = {key for key in inputs if not torch.equal(inputs[key], made[key])}
    state = {key: value for key, value in inputs.items() if key[0] in ("param", "opt_state", "buffer")}
    free = {key for key, value in state.items() if value.dim() and value.is_floating_point()}
    assert moved == free - {("buffer", "mask")}
    assert ("buffer", "0.running_var") in moved and ("buffer", "0.num_batches_tracked") not in moved
    for key in moved:
        value, before = made[key], inputs[key]
        assert value.unique().numel() > value.numel() * 0.9 and value.dtype == before.dtype
        assert bool((value[before == 0] > 0).all())
        assert float((value - before).abs().max()) <= PART * max(1.0, float(before.abs().max())) + 1e-6
        assert key[0] == "param" or bool((value > 0).all())


def test_state_of_a_running_optimizer_keeps_its_relations() -> None:
    """A centred RMSProp's second moment is never below the square of its first."""
    step = compiled()
    inputs = example_inputs(step.compiled.capture, step._optimizer, step._batch)
    key = "opt_state", "1.weight/exp_avg_sq"
    inputs[key] = torch.rand(8, 8)
    assert torch.equal(perturbed(inputs, step.compiled.global_module)[key], inputs[key])


class Bounded(nn.Module):
    """A parameter just below 1, which its logarithm needs."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Parameter(torch.full((8,), 1 - 2e-3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * torch.log1p(-self.part)).square().mean()


def test_where_perturbed_state_is_not_legal_the_proof_starts_from_the_users() -> None:
    model = Bounded()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    plan: dict[str, list[list[str]]] = {"part": [["a"]]}
    step = compile_step(model, optimizer, (torch.randn(4, 8),), mesh={"a": 2}, plan=plan, fuse=False)
    inputs = example_inputs(step.compiled.capture, optimizer, step._batch)
    whole = step.compiled.global_module
    perturbed_part = perturbed(inputs, whole)["param", "part"]
    assert float(perturbed_part.max()) > 1
    proof = step.check()
    assert proof.passed and not proof.exact.undefined
    nothing = inputs | {("param", "part"): torch.full((8,), 2.0)}
    undefined = prove_step(whole, step.compiled.program, nothing)
    assert not undefined.passed and undefined.exact.undefined
