"""Every overload that PyTorch tags as drawing numbers is counter-based in a trace, or refused by name at its
line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from shardc.diagnostics.frontend import TraceFailed, UnsupportedRandomOp
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.spec import Capture

aten = torch.ops.aten
SIZE = 6

# Kernels of other devices and layouts, which no function of torch calls on the CPU tensors of a trace.
KERNELS = {
    "_cudnn_attention_backward",
    "_cudnn_attention_forward",
    "_cudnn_init_dropout_state",
    "_cudnn_rnn",
    "_efficient_attention_forward",
    "_fill_mem_eff_dropout_mask_",
    "_flash_attention_forward",
    "_flash_attention_forward_no_dropout_inplace",
    "_fused_dropout",
    "_lstm_mps",
    "_nested_tensor_softmax_with_shape",
    "_scaled_dot_product_attention_math_for_mps",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",
    "_triton_scaled_dot_attention",
    "miopen_rnn",
}
UNTRACEABLE = {"gru.data", "lstm.data", "rnn_relu.data", "rnn_tanh.data", "random.from_out", "uniform.out"}
"""PyTorch itself cannot trace them: lengths of packed sequences are read, and an argument is
called ``from``.
"""
NO_RESULT = {"_fused_sdp_choice"}
"""Chooses a kernel: an integer, not a tensor."""


def seeded() -> Iterator[Any]:
    """Every tagged overload of ``aten``."""
    names = {
        (s.name, s.overload_name) for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")
    }
    for name, overload in sorted(names):
        packet = getattr(aten, name.removeprefix("aten::"), None)
        op = getattr(packet, overload or "default", None) if packet is not None else None
        if isinstance(op, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in op.tags:
            yield op


def positive(*shape: int) -> torch.Tensor:
    return torch.full(shape, 0.5)


def rnn(op: Any) -> tuple[Any, ...]:
    """Two layers with dropout between: input [T, B, I], states [layers, B, H], weights."""
    gates = {"lstm": 4, "gru": 3}.get(op._schema.name.removeprefix("aten::"), 1) * 3
    weights = [
        t
        for _ in range(2)
        for t in (positive(gates, 3), positive(gates, 3), positive(gates), positive(gates))
    ]
    state: Any = positive(2, 2, 3)
    if "lstm" in op._schema.name:
        state = [state, state]
    if op._overloadname == "data":
        return positive(8, 3), torch.tensor([2, 2, 2, 2]), state, weights, True, 2, 0.5, True, False
    return positive(4, 2, 3), state, weights, True, 2, 0.5, True, False, False


def call(op: Any, **more: Any) -> Any:
    args, kwargs = arguments(op)
    return op(*args, **{**kwargs, **more})


def arguments(op: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Values for an op's required arguments by the types in its schema; by name where a type does not say
    enough.
    """
    name = op._schema.name.removeprefix("aten::")
    if name in ("lstm", "gru", "rnn_relu", "rnn_tanh"):
        return rnn(op), {}
    if "scaled_dot_product" in name:
        q = positive(1, 2, 4, 8)
        dropout = {"dropout_p": 0.5}
        return ((q, q, q, None), dropout) if name.endswith(("attention", "math")) else ((q, q, q), dropout)
    by_name: dict[str, Any] = {
        "high": 5,
        "low": 1,
        "to": 5,
        "from": 1,
        "n": SIZE,
        "num_samples": 2,
        "train": True,
    }
    by_name |= {"size": [SIZE], "lower": 0.1, "upper": 0.9}
    shape = (SIZE, 2) if name.startswith("feature") else (SIZE,)
    by_type: dict[str, Any] = {"Tensor": positive(*shape), "float": 0.5, "bool": True}
    args, kwargs = [], {}
    for argument in op._schema.arguments:
        if argument.is_out:
            kwargs[argument.name] = torch.zeros(SIZE)
        elif argument.kwarg_only:
            if "generator" in op._overloadname and argument.name == "generator":
                kwargs["generator"] = None
        elif not argument.has_default_value() or (name.startswith("rrelu") and argument.name != "generator"):
            kind = str(argument.type)
            named = by_name.get(argument.name) if kind != "Tensor" else None
            args.append(by_type[kind] if named is None else named)
    if name == "randint_like" and "Tensor" in op._overloadname:
        args[1] = torch.tensor(5)
    return tuple(args), kwargs


def captured(call: Callable[[], Any]) -> Capture:
    """A step whose loss has what ``call`` makes in it."""
    model = nn.Linear(3, 1)

    def loss(out: torch.Tensor, batch: object) -> torch.Tensor:
        made = call()
        made = made[0] if isinstance(made, (tuple, list)) else made
        return (out * made.to(out.dtype).sum()).sum()

    return capture_step(model, torch.optim.SGD(model.parameters(), lr=0.1), (torch.ones(2, 3),), loss=loss)


ALL = {str(op).removeprefix("aten."): op for op in seeded()}


def test_the_walk_finds_the_ops() -> None:
    assert len(ALL) >= 149
    names = {op._schema.name.removeprefix("aten::") for op in ALL.values()}
    assert names > KERNELS | NO_RESULT, "a name above is no op any more"


DRAWN = [n for n in ALL if n.partition(".")[0] not in KERNELS | NO_RESULT and n not in UNTRACEABLE]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", DRAWN)
def test_drawn_by_the_counter(name: str) -> None:
    capture = captured(lambda: call(ALL[name]))
    targets = [node.target for node in capture.graph.graph.nodes if node.op == "call_function"]
    drawn = [t for t in targets if isinstance(t, torch._ops.OpOverload) and t.namespace == "shardc"]
    assert drawn, f"{name} draws nothing"
    assert not [t for t in targets if torch.Tag.nondeterministic_seeded in getattr(t, "tags", ())]


@pytest.mark.parametrize("name", sorted(UNTRACEABLE))
def test_what_torch_cannot_trace_is_refused_at_its_line(name: str) -> None:
    with pytest.raises(TraceFailed) as caught:
        captured(lambda: call(ALL[name]))
    assert caught.value.where is not None and __file__ in caught.value.where


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_kernels_of_other_devices_are_refused(name: str) -> None:
    """As nodes of a graph, since most cannot be called here: whatever makes one, the graph is not
    compiled.
    """
    from shardc.frontend.importing.cleanup import clean

    for op in (op for key, op in ALL.items() if key.partition(".")[0] == name and not op._schema.is_mutable):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        p = [i for i, a in enumerate(op._schema.arguments) if a.name == "dropout_p"]
        args = [x, *[0.5 if [i] == p else None for i in range(1, len(op._schema.arguments))]]
        node = graph.call_function(op, tuple(args))
        node.meta["shardc_frames"] = (("model.py", 12),)
        graph.output(node)
        with pytest.raises(UnsupportedRandomOp, match=name) as caught:
            clean(torch.fx.GraphModule({}, graph))
        assert caught.value.where == "model.py:12"


def test_attention_without_dropout_stays() -> None:
    op = aten._scaled_dot_product_flash_attention_for_cpu.default

    def attention(*dropout: float) -> torch.Tensor:
        return op(*[positive(1, 2, 4, 8)] * 3, *dropout)

    assert op in [node.target for node in captured(attention).graph.graph.nodes]
    with pytest.raises(UnsupportedRandomOp, match="_scaled_dot_product_flash_attention_for_cpu") as caught:
        captured(lambda: attention(0.5))
    assert caught.value.where is not None and __file__ in caught.value.where


WITH_GENERATOR = [
    n
    for n, op in ALL.items()
    if any(a.name == "generator" for a in op._schema.arguments) and n.partition(".")[0] not in KERNELS
]


@pytest.mark.sampled(19)
@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_a_generator_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedRandomOp, match="a generator of its own") as caught:
        captured(lambda: call(ALL[name], generator=torch.Generator()))
    assert caught.value.where is not None and __file__ in caught.value.where
    assert "use " in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: torch.empty(3).bernoulli_(1.5), "p is 1.5"),
        (lambda: torch.empty(3).exponential_(-1), "lambda|lambd"),
        (lambda: torch.empty(3).geometric_(1.0), "p"),
        (lambda: torch.randint(3, 3, (2,)), "there are none"),
        (lambda: torch.multinomial(torch.ones(3), 4), "4 of 3"),
        (lambda: torch.empty(3).normal_(0, -1), "std"),
    ],
)
def test_arguments_that_torch_refuses_are_refused(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(TraceFailed, match=message):
        captured(wrong)
