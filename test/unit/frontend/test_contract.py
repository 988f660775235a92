"""The level-1 contract: form of the imported module for any model."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
import transformers as hf
from torch import nn
from torch_mlir import ir

from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.spec import ARGUMENT_ROLES, RESULT_ROLES, Capture


class Net(nn.Module):
    """A buffer, a constant, dropout, a tied gradient op and a fused attention in one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(7, 8), nn.BatchNorm1d(8)
        self.a, self.b = nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(8))
        self.table = torch.arange(8.0)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids).unsqueeze(1)
        hidden = nn.functional.scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True).squeeze(1)
        hidden = nn.functional.dropout(hidden * self.table, 0.5)
        return (self.norm(hidden.flatten(0, 1)) + (self.a + self.b)).square().mean()


@pytest.fixture(scope="module")
def capture() -> Capture:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return capture_step(model, optimizer, {"ids": torch.zeros(3, 4, dtype=torch.int64)}, clip_grad_norm=1.0)


def function(capture: Capture) -> ir.Operation:
    (only,) = capture.module.body.operations
    return only.operation


def ops(capture: Capture) -> Iterator[ir.Operation]:
    for op in function(capture).regions[0].blocks[0].operations:
        yield op.operation


def is_computation(op: ir.Operation) -> bool:
    return not op.name.startswith(
        ("torch.constant", "torch.prim.ListConstruct", "func.return", "torch.prim.NumTo")
    )


def attributes(array: ir.Attribute) -> list[tuple[str, str]]:
    return [
        (ir.StringAttr(d["dist.role"]).value, ir.StringAttr(d["dist.name"]).value)
        for d in ir.ArrayAttr(array)
    ]


def test_arguments_are_in_the_order_of_their_roles(capture: Capture) -> None:
    found = attributes(function(capture).attributes["arg_attrs"])
    assert found == [(s.role, s.name) for s in capture.arguments]
    order = [ARGUMENT_ROLES.index(role) for role, _ in found]
    assert order == sorted(order) and set(order) == set(range(len(ARGUMENT_ROLES)))
    names = [name for _, name in found]
    assert names[:5] == ["a", "b", "embed.weight", "norm.weight", "norm.bias"]
    assert {"a/step", "embed.weight/exp_avg_sq", "norm.running_mean", "group0.lr", "ids"} <= set(names)
    assert found[-2:] == [("seed", "seed"), ("constant", "constant0")]


def test_results_are_the_loss_and_the_new_state(capture: Capture) -> None:
    found = attributes(function(capture).attributes["res_attrs"])
    state = [(s.role, s.name) for s in capture.arguments if s.role in RESULT_ROLES]
    assert found == [("loss", "loss"), *state]
    assert capture.results[0].shape == ()


def test_types_are_value_tensors_of_the_specs(capture: Capture) -> None:
    block = function(capture).regions[0].blocks[0]
    for argument, spec in zip(block.arguments, capture.arguments, strict=True):
        shape = ",".join(map(str, spec.shape))
        assert str(argument.type).startswith(f"!torch.vtensor<[{shape}],")


def test_every_computation_has_a_phase_in_order(capture: Capture) -> None:
    phases = [ir.StringAttr(op.attributes["dist.phase"]).value for op in ops(capture) if is_computation(op)]
    order = ["forward", "backward", "optimizer"]
    assert phases == sorted(phases, key=order.index) and set(phases) == set(order)


def test_every_gradient_is_named_once(capture: Capture) -> None:
    named = [
        ir.StringAttr(op.attributes["dist.name"]).value for op in ops(capture) if "dist.name" in op.attributes
    ]
    # a + b has one gradient for both.
    assert "grad:a,grad:b" in named
    names = [re.sub(r"^grad:|#\d+$", "", part) for entry in named for part in entry.split(",")]
    assert sorted(names) == sorted(s.name for s in capture.with_role("param"))


def test_gradient_of_an_op_with_several_results_has_its_index() -> None:
    model = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    capture = capture_step(
        model, optimizer, (torch.zeros(2, 3, 8, 8),), loss=lambda out, _: out.square().sum()
    )
    names = [
        ir.StringAttr(op.attributes["dist.name"]).value for op in ops(capture) if "dist.name" in op.attributes
    ]
    assert names == ["grad:weight#1,grad:bias#2"]


def test_every_op_has_a_location_in_user_code(capture: Capture) -> None:
    places: dict[str, set[str]] = {}
    for op in [capture.module.operation, function(capture), *ops(capture)]:
        assert "unknown" not in str(op.location), op
        if "dist.phase" in op.attributes:
            places.setdefault(ir.StringAttr(op.attributes["dist.phase"]).value, set()).add(str(op.location))
    for phase in ("forward", "backward"):
        assert all(__file__ in place for place in places[phase]), places[phase]
    attention = [op for op in ops(capture) if op.name == "torch.operator" and "attention" in str(op)]
    assert len(attention) == 2 and attention[0].location == attention[1].location
    assert any('"embed.weight"' in place and "optimizer:AdamW" in place for place in places["optimizer"])
    assert any("optimizer:clip_grad_norm" in place for place in places["optimizer"])


def test_only_functional_ops_remain(capture: Capture) -> None:
    names = {op.name for op in ops(capture)}
    noise = {"torch.aten.detach", "torch.aten.alias", "torch.aten.lift_fresh_copy", "torch.aten.bernoulli"}
    assert not names & noise
    assert not any(name.endswith("_") or "empty" in name or "_like" in name for name in names)
    used = {id(v) for op in ops(capture) for v in op.operands}
    assert used
    for op in ops(capture):
        if op.name != "func.return":
            assert any(list(result.uses) for result in op.results), f"dead: {op}"


def test_module_verifies_and_parses_back(capture: Capture) -> None:
    assert capture.module.operation.verify()
    text = capture.module.operation.get_asm(enable_debug_info=True)
    with capture.module.context:
        again = ir.Module.parse(text)
    assert again.operation.get_asm(enable_debug_info=True) == text


def test_cse_merges_constants_and_nothing_else() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(out: torch.Tensor, batch: object) -> torch.Tensor:
        return (out.relu() * out.relu()).sum() + torch.rand(2).sum() + torch.rand(2).sum()

    capture = capture_step(model, optimizer, (torch.ones(2, 3),), loss=loss)
    names = [op.name for op in ops(capture)]
    assert names.count("torch.aten.relu") == 2
    assert sum("uniform" in str(op) for op in ops(capture) if op.name == "torch.operator") == 2
    constants = [str(op).split("=")[1] for op in ops(capture) if op.name.startswith("torch.constant")]
    assert len(constants) == len(set(constants))


def test_meta_model_has_no_initial_values() -> None:
    with torch.device("meta"):
        model = hf.LlamaForCausalLM(
            hf.LlamaConfig(
                hidden_size=32,
                num_hidden_layers=1,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=64,
                vocab_size=64,
            )
        )
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.zeros(2, 8, dtype=torch.int64)
    capture = capture_step(model, optimizer, {"input_ids": ids, "labels": ids})
    assert all(value is None for value in capture.initial_values().values())
    assert capture.fill_value("lm_head.weight/exp_avg") == 0.0
    assert next(model.parameters()).is_meta and not optimizer.state
    assert model.config.use_cache is True


def test_grouped_heads_stay_grouped_and_causal_by_flag() -> None:
    config = hf.LlamaConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        vocab_size=64,
    )
    model = hf.LlamaForCausalLM(config)
    ids = torch.zeros(2, 8, dtype=torch.int64)
    capture = capture_step(model, torch.optim.SGD(model.parameters()), {"input_ids": ids, "labels": ids})
    (call,) = [n for n in capture.graph.graph.nodes if "shardc.attention.default" in str(n.target)]
    query, key, _, mask, causal, *_ = call.args
    assert query.meta["val"].shape == (2, 4, 8, 8) and key.meta["val"].shape == (2, 2, 8, 8)
    assert mask is None and causal is True
