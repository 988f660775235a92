"""Data parallelism and ZeRO: collectives, bytes and memory of the published table.

For a weight of W elements on p devices, in elements that each sends: data parallel an all-reduce of 2(p-1)/p
W; ZeRO-1 and 2 a reduce-scatter and an all-gather, together as much; ZeRO-3 a reduce-scatter and two gathers,
3(p-1)/p W (Rajbhandari et al. 2020; survey of auto-parallelism, Table III). The second gather is the backward
pass's: a weight that it does not read (an embedding, the first layer's of a network, a bias) is not gathered
for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

P = 4
MESH = {"data": P}
F32 = 4
MODELS = ("mlp", "llama")
GATHER, SCATTER = "all_gather", "reduce_scatter"


@pytest.fixture(scope="session")
def compiled(llama: Callable, mlp: Callable) -> Callable:
    """``compiled(model, plan)`` on four data ranks; each compiled once."""
    known: dict[tuple[str, str], Any] = {}

    def compile_once(model: str, plan: str) -> Any:
        key = (model, plan)
        if key not in known:
            known[key] = llama(1, plan, MESH) if model == "llama" else mlp(plan, MESH)
        return known[key]

    return compile_once


def _bytes(program: Any) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for t in program.transfers:
        assert t.axes == ("data",)
        found[t.phase, t.kind] = found.get((t.phase, t.kind), 0) + t.bytes_moved
    return found


def _not_read_in_backward(model: str) -> tuple[str, ...]:
    """The weights that no gradient of another value depends on."""
    return ("model.embed_tokens.weight",) if model == "llama" else ("0.weight",)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", MODELS)
def test_data_all_reduces_every_gradient(compiled: Callable, model: str) -> None:
    program = compiled(model, "data")
    assert _bytes(program) == {("backward", "all_reduce"): 2 * (P - 1) / P * program.weights * F32}
    assert len(program.transfers) == len(program.parameters)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_zero_1_and_2_scatter_and_gather(compiled: Callable, model: str, stage: int) -> None:
    program = compiled(model, f"zero{stage}")
    part = (P - 1) / P * program.weights * F32
    assert _bytes(program) == {("backward", "reduce_scatter"): part, ("", "all_gather"): part}
    assert len(program.transfers) == 2 * len(program.parameters)


@pytest.mark.parametrize("model", MODELS)
def test_zero_3_gathers_in_each_pass(compiled: Callable, model: str) -> None:
    program = compiled(model, "zero3")
    part = (P - 1) / P * program.weights * F32
    unread = sum(program.parameters[name].numel for name in _not_read_in_backward(model))
    assert _bytes(program) == {
        ("forward", "all_gather"): part,
        ("backward", "all_gather"): part - (P - 1) / P * unread * F32,
        ("backward", "reduce_scatter"): part,
    }


class Tied(nn.Module):
    """An embedding that is also the head, round one layer: backward reads every weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(64, 16), nn.Linear(16, 16, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(self.layer(self.embed(ids)).tanh(), self.embed.weight)


def test_zero_3_where_backward_reads_every_weight(compile_plan: Callable) -> None:
    """The table's figure to the byte: 3(p-1)/p W."""
    batch = {"ids": torch.zeros(8, 4, dtype=torch.int64)}
    program = compile_plan(Tied(), batch, "zero3", MESH, loss=lambda out, _: out.square().mean())
    assert sum(_bytes(program).values()) == 3 * (P - 1) / P * program.weights * F32
    part = (P - 1) / P * program.weights * F32
    assert _bytes(program) == {
        (p, k): part for p, k in [("forward", GATHER), ("backward", GATHER), ("backward", SCATTER)]
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize("plan", ["data", "zero1", "zero2", "zero3"])
@pytest.mark.parametrize("model", MODELS)
def test_packing_moves_the_same_bytes_in_fewer_collectives(compiled: Callable, model: str, plan: str) -> None:
    program = compiled(model, plan)
    assert sum(t.bytes_moved for t in program.packed) == sum(t.bytes_moved for t in program.transfers)
    assert len(program.packed) < len(program.transfers) / 2


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": torch.optim.SGD,
    "SGD, decayed": lambda p: torch.optim.SGD(p, weight_decay=0.1),
    "SGD, momentum": lambda p: torch.optim.SGD(p, momentum=0.9, nesterov=True),
    "AdamW": torch.optim.AdamW,
    "Adagrad": torch.optim.Adagrad,
    "RMSprop": torch.optim.RMSprop,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_gradients_travel_together_in_the_backward(mlp: Callable, optimizer: Callable) -> None:
    """Though the update of SGD is linear, and sums could wait until they meet the weights."""
    program = mlp("data", MESH, bias=True, optimizer=optimizer)
    assert [(t.phase, t.kind) for t in program.packed] == [("backward", "all_reduce")]
    assert len(program.transfers) == len(program.parameters)


@pytest.mark.parametrize(
    ("plan", "params", "states"), [("data", 1, 1), ("zero1", 1, P), ("zero2", 1, P), ("zero3", P, P)]
)
@pytest.mark.parametrize("model", MODELS)
def test_memory_of_a_device(compiled: Callable, model: str, plan: str, params: int, states: int) -> None:
    """AdamW keeps two tensors and a step counter per parameter; every tensor of these models divides."""
    program = compiled(model, plan)
    assert program.report.local_bytes["param"] == program.weights * F32 // params
    counters = len(program.parameters) * F32
    assert program.report.local_bytes["opt_state"] == 2 * program.weights * F32 // states + counters


def _halved(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The block of one of two devices: the first dim that divides is cut."""
    dim = next(d for d, size in enumerate(shape) if size % 2 == 0)
    return tuple(size // 2 if d == dim else size for d, size in enumerate(shape))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "optimizer", [torch.optim.AdamW, lambda p: torch.optim.SGD(p, lr=0.1)], ids=["AdamW", "SGD"]
)
@pytest.mark.parametrize(("plan", "cut"), [("zero1", False), ("zero2", True), ("zero3", True)])
@pytest.mark.parametrize("model", MODELS)
def test_accumulated_gradients(
    llama: Callable, mlp: Callable, model: str, plan: str, cut: bool, optimizer: Callable
) -> None:
    """With two micro-batches a loop carries each gradient: whole under ZeRO-1,
    this device's piece under ZeRO-2 and 3.
    """
    options = {"micro_batches": 2, "optimizer": optimizer}
    program = (
        llama(1, plan, {"data": 2}, **options) if model == "llama" else mlp(plan, {"data": 2}, **options)
    )
    shapes = [t.shape for t in program.parameters.values()]
    assert program.carried() == Counter(_halved(shape) if cut else shape for shape in shapes)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("plan", "times"), [("zero1", 1), ("zero2", 2)])
def test_how_often_accumulated_gradients_are_scattered(llama: Callable, plan: str, times: int) -> None:
    """After the loop under ZeRO-1, in each of two iterations under ZeRO-2: the price of the smaller
    accumulator.
    """
    program = llama(1, plan, {"data": 2}, micro_batches=2)
    scatters = [t for t in program.transfers if t.kind == "reduce_scatter"]
    assert {t.times for t in scatters} == {times}
    assert sum(t.bytes_moved for t in scatters) == times * program.weights / 2 * F32


@pytest.mark.parametrize("plan", ["zero3:data*zero1:replica", "zero1:replica*zero3:data"])
def test_a_lower_stage_splits_what_a_higher_one_leaves(mlp: Callable, plan: str) -> None:
    """Parameters over `data`, optimizer state over `replica`, too: gradients are scattered over both, and
    updated parameters are gathered over `replica`. The order of the presets changes nothing.
    """
    program = mlp(plan, {"replica": 2, "data": 2})
    found = Counter[tuple[str, tuple[str, ...]]]()
    for transfer in program.transfers:
        if transfer.phase != "forward" and transfer.kind != "all_reduce":
            found[transfer.kind, tuple(sorted(transfer.axes))] += transfer.bytes_moved
    weights = program.weights * F32
    assert found[SCATTER, ("data", "replica")] == weights * 3 / 4
    assert found[GATHER, ("replica",)] == weights / 2 / 2
    assert {kind for kind, _ in found} == {SCATTER, GATHER}
    counters = len(program.parameters) * F32
    assert program.report.local_bytes["param"] == weights // 2
    assert program.report.local_bytes["opt_state"] == 2 * weights // 4 + counters


def test_what_does_not_divide_stays_whole(compile_plan: Callable) -> None:
    """A weight of 6 x 16 is cut on its second dim; a bias of 6 is on every device, its gradient
    all-reduced.
    """
    batch = {"input": torch.zeros(8, 16)}
    model = torch.nn.Linear(16, 6)
    program = compile_plan(model, batch, "zero3", MESH, loss=lambda out, _: out.square().mean())
    assert program.layouts() == {"weight": "[*, data]", "bias": "[*]"}
    assert _bytes(program) == {
        ("forward", "all_gather"): (P - 1) / P * 6 * 16 * F32,
        ("backward", "reduce_scatter"): (P - 1) / P * 6 * 16 * F32,
        ("backward", "all_reduce"): 2 * (P - 1) / P * 6 * F32,
    }


def test_a_matrix_that_does_not_divide_is_padded_in_storage(compile_plan: Callable) -> None:
    """7 x 15 is stored as 7 x 16, gathered and reduce-scattered so; forward and backward compute
    with 7 x 15.
    """
    model = torch.nn.Linear(15, 7, bias=False)
    program = compile_plan(
        model, {"input": torch.zeros(8, 15)}, "zero3", MESH, loss=lambda out, _: out.square().mean()
    )
    assert program.layouts() == {"weight": "[*, data]"}
    moved = (P - 1) / P * 7 * 16 * F32
    assert _bytes(program) == {("forward", "all_gather"): moved, ("backward", "reduce_scatter"): moved}


def test_zero_over_data_leaves_tensor_cuts_alone(llama: Callable) -> None:
    program = llama(1, "zero3*tensor", {"data": 2, "tensor": 2})
    layouts = program.layouts()
    assert layouts["model.layers.0.self_attn.q_proj.weight"] == "[tensor+data, *]"
    assert layouts["model.layers.0.self_attn.o_proj.weight"] == "[data, tensor]"
    assert layouts["model.norm.weight"] == "[data]"
    projections = sum(t.numel for name, t in program.parameters.items() if "_proj" in name)
    rest = program.weights - projections
    # The projections over both axes, embedding and head over both too (by the model's plan), the norms over
    # one.
    norms = sum(t.numel for name, t in program.parameters.items() if "norm" in name)
    assert program.report.local_bytes["param"] == ((projections + rest - norms) // 4 + norms // 2) * F32


@pytest.mark.slow
def test_reductions_over_two_axes_are_packed_one_after_the_other(llama: Callable) -> None:
    """A norm's gradient is scattered over data, then reduced over tensor; so are those of all five norms
    together.
    """
    program = llama(2, "zero3*sequence", {"data": 2, "tensor": 2})
    single, packed = (
        Counter((t.kind, t.axes) for t in found if t.phase == "backward")
        for found in (program.transfers, program.packed)
    )
    scatters, reduces = ("reduce_scatter", ("data",)), ("all_reduce", ("tensor",))
    # Another all-reduce over tensor, of the loss's rows, stays alone.
    assert (single[scatters], single[reduces]) == (len(program.parameters), 5 + 1)
    assert (packed[scatters], packed[reduces]) == (1, 1 + 1)
    assert sum(t.bytes_moved for t in program.packed) == sum(t.bytes_moved for t in program.transfers)
