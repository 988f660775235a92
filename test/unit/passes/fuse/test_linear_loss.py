"""Linear layers with a cross entropy behind them: two kernels that hold no logits, and still the
same step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_mlir import ir

from shardc.backends.eager.proof.compare import prove_step
from shardc.compiler.memory import step_peak
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.passes.fuse.grouping.capabilities import ALL
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.step.shard import compile_capture
from shardc.step.sharding.mesh import make_mesh
from shardc.step.values import example_inputs

WORDS, SIZE, BATCH, LENGTH = 50, 12, 4, 6
FORWARD, BACKWARD = '"kern.linear_cross_entropy"', '"kern.linear_cross_entropy_backward"'


class Model(nn.Module):
    """Logits as language models of ``transformers`` make them, and their loss."""

    def __init__(self, bias: bool = False, tied: bool = False) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, SIZE), nn.Linear(SIZE, WORDS, bias=bias)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.words(ids).tanh())


def shifted(logits: Tensor, batch: Any) -> Tensor:
    """Labels moved by one, the last ones ignored, in f32."""
    labels = F.pad(batch["ids"], (0, 1), value=-100)[..., 1:].contiguous()
    return F.cross_entropy(logits.float().view(-1, WORDS), labels.view(-1), ignore_index=-100)


def traced(
    loss: Callable[..., Tensor] = shifted,
    mesh: dict[str, int] | None = None,
    plan: str = "data",
    micro_batches: int = 1,
    dtype: torch.dtype = torch.float32,
    **options: bool,
) -> tuple[Any, ir.Module, Any]:
    """The single-device program, the rank program, and example inputs."""
    torch.manual_seed(0)
    model, batch = Model(**options).to(dtype), {"ids": torch.randint(WORDS, (BATCH, LENGTH))}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    capture = capture_step(
        model, optimizer, batch, loss=lambda out, given: loss(out, given), context=new_context()
    )
    compiled = compile_capture(capture, make_mesh(mesh or {"data": 1}, micro_batches), plan)
    return compiled.global_module, compiled.rank_module, example_inputs(capture, optimizer, batch)


def apart(module: ir.Module, **options: Any) -> list[str]:
    """Why the product and its softmax are no such kernels."""
    decisions = fuse_module(module, matmuls="generated", capabilities=ALL, **options)
    assert FORWARD not in str(module) and BACKWARD not in str(module)
    return [d.why for _, _, d in decisions if not d.fused]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("mesh", "plan", "micro_batches", "options"),
    [
        ({"data": 1}, "data", 1, {}),
        ({"data": 1}, "data", 1, {"tied": True}),
        ({"data": 2}, "zero3", 1, {"bias": True}),
        ({"data": 1}, "data", 2, {"bias": True, "tied": True}),
        ({"data": 2}, "data", 1, {}),
        ({"data": 2}, "zero3", 1, {}),
        ({"data": 2}, "zero3", 1, {"tied": True}),
        ({"data": 1}, "data", 2, {}),
        ({"data": 2}, "zero3", 2, {"tied": True}),
    ],
    ids=[
        "one device",
        "tied",
        "zero3 bias",
        "tied bias micro-batches",
        "data",
        "zero3",
        "zero3 tied",
        "micro-batches",
        "zero3 tied micro-batches",
    ],
)
def test_it_is_the_same_step(
    mesh: dict[str, int], plan: str, micro_batches: int, options: dict[str, bool]
) -> None:
    whole, module, inputs = traced(mesh=mesh, plan=plan, micro_batches=micro_batches, **options)
    before = step_peak(module).size_bytes
    decisions = fuse_module(module, matmuls="generated", capabilities=ALL)
    module.operation.verify()
    text = str(module)
    assert text.count(FORWARD) == text.count(BACKWARD) == 1
    rows = BATCH * LENGTH // mesh["data"] // micro_batches
    for gone in (
        "torch.aten._log_softmax ",
        "torch.aten.scatter.value ",
        f"[{rows},{WORDS}],f32",
        f"<{rows}x{WORDS}x",
    ):
        assert gone not in text
    assert any(d.fused and d.saved_bytes > 1 << 16 for _, _, d in decisions)
    assert step_peak(module).size_bytes < before
    proof = prove_step(whole, module, inputs, steps=2)
    assert proof.passed, proof.render()


def test_conversions_between_are_in_the_kernels() -> None:
    whole, module, inputs = traced(dtype=torch.bfloat16)
    fuse_module(module, matmuls="generated", capabilities=ALL)
    text = str(module)
    assert text.count(FORWARD) == text.count(BACKWARD) == 1 and f"{WORDS}],f32" not in text
    proof = prove_step(whole, module, inputs, steps=1)
    assert proof.passed, proof.render()


def test_a_softmax_in_16_bits() -> None:
    """What calls round of it, probabilities of the class of a row, is rounded; logits are not."""
    whole, module, inputs = traced(
        lambda x, given: F.cross_entropy(x.view(-1, WORDS), given["ids"].view(-1)), dtype=torch.bfloat16
    )
    fuse_module(module, matmuls="generated", capabilities=ALL)
    text = str(module)
    assert text.count(FORWARD) == text.count(BACKWARD) == 1 and f"{WORDS}],bf16" not in text
    proof = prove_step(whole, module, inputs, steps=1)
    assert proof.passed, proof.render()


def smoothed(logits: Tensor, batch: Any) -> Tensor:
    """With labels that are ignored, which are classes too."""
    return F.cross_entropy(
        logits.float().view(-1, WORDS), batch["ids"].view(-1), label_smoothing=0.1, ignore_index=3
    )


def smoothed_rows(logits: Tensor, batch: Any) -> Tensor:
    """A gradient for each row of its own."""
    loss = F.cross_entropy(
        logits.float().view(-1, WORDS), batch["ids"].view(-1), label_smoothing=0.1, reduction="none"
    )
    return loss.square().mean()


def weighted(logits: Tensor, batch: Any) -> Tensor:
    """With a weight for each class, and labels that are ignored."""
    labels = F.pad(batch["ids"], (0, 1), value=-100)[..., 1:].contiguous()
    return F.cross_entropy(logits.float().view(-1, WORDS), labels.view(-1), torch.arange(1.0, WORDS + 1))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (smoothed, {}),
        (smoothed, {"mesh": {"data": 2}, "plan": "zero3", "bias": True}),
        (smoothed, {"micro_batches": 2, "tied": True}),
        (smoothed_rows, {}),
        (weighted, {}),
        (weighted, {"mesh": {"data": 2}, "micro_batches": 2, "bias": True}),
    ],
    ids=[
        "smoothed",
        "smoothed zero3 bias",
        "smoothed micro-batches tied",
        "smoothed rows",
        "weighted",
        "weighted micro-batches bias",
    ],
)
def test_label_smoothing_and_weights_of_classes(
    loss: Callable[..., Tensor], options: dict[str, Any], dtype: torch.dtype
) -> None:
    whole, module, inputs = traced(loss, dtype=dtype, **options)
    before = step_peak(module).size_bytes
    fuse_module(module, matmuls="generated", capabilities=ALL)
    module.operation.verify()
    text = str(module)
    assert text.count(FORWARD) == text.count(BACKWARD) == 1
    rows = BATCH * LENGTH // options.get("mesh", {"data": 1})["data"] // options.get("micro_batches", 1)
    made = [
        line.partition("->")[2]
        for line in text.splitlines()
        if "torch.aten." in line and ".expand " not in line
    ]
    assert not any(f"[{rows},{WORDS}],f32" in types for types in made)
    # Sums of micro-batches, in f32, are the peak of so small a model in bf16.
    is_sum = dtype == torch.bfloat16 and "micro_batches" in options
    assert step_peak(module).size_bytes < (1.02 if is_sum else 1.0) * before
    proof = prove_step(whole, module, inputs, steps=2)
    assert proof.passed, proof.render()


def test_the_name_of_the_gradient_stays() -> None:
    _, module, _ = traced()
    fuse_module(module, matmuls="generated", capabilities=ALL)
    named = [line for line in str(module).splitlines() if "grad:head.weight#1" in line]
    assert len(named) == 1 and "TupleUnpack" in named[0]


REFUSED: dict[str, tuple[Callable[..., Tensor], dict[str, Any], str]] = {
    "kept": (lambda x, given: shifted(x, given) + x.mean(), {}, "the logits are kept"),
    "probabilities": (
        lambda x, given: shifted(x, given) + F.log_softmax(x.float().view(-1, WORDS), -1).mean(),
        {},
        "the logarithms of all probabilities are kept",
    ),
    "smoothed, with weights": (
        lambda x, given: F.cross_entropy(
            x.view(-1, WORDS), given["ids"].view(-1), torch.arange(1.0, WORDS + 1), label_smoothing=0.1
        ),
        {},
        "the logarithms of all probabilities are kept: aten.sum.dim_IntList reads them",
    ),
    "soft targets": (
        lambda x, given: F.cross_entropy(x.view(-1, WORDS), torch.ones(BATCH * LENGTH, WORDS) / WORDS),
        {},
        "the logarithms of all probabilities are kept",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_others_that_read_the_logits(name: str) -> None:
    loss, options, why = REFUSED[name]
    _, module, _ = traced(loss, **options)
    assert any(why in said for said in apart(module))


def test_eager_rounding_rounds_logits() -> None:
    _, module, _ = traced(dtype=torch.bfloat16)
    assert "logits are rounded to torch.bfloat16" in apart(module, rounding="eager")


def test_eager_rounding_rounds_logits_on_the_way() -> None:
    _, module, _ = traced(lambda x, given: shifted(x.bfloat16(), given))
    assert "logits are rounded to torch.bfloat16" in apart(module, rounding="eager")


def test_a_forbidden_edge() -> None:
    _, module, _ = traced()
    assert "mm+_log_softmax is forbidden" in apart(
        module, constraints=FusionConstraints.of(["mm+_log_softmax"])
    )


def test_without_its_calls() -> None:
    """As where its kernel did not compile."""
    _, module, _ = traced()
    decisions = fuse_module(traced()[1], matmuls="generated", capabilities=ALL)
    (first,) = [
        first
        for first, _, d in decisions
        if d.fused and d.saved_bytes == (1 << 16) + 2 * BATCH * LENGTH * WORDS * 4
    ]
    assert "one of the calls must stay outside kernels" in apart(module, without=frozenset((first,)))


def test_cpus_have_no_such_kernels() -> None:
    _, module, _ = traced()
    fuse_module(module, matmuls="generated")
    assert FORWARD not in str(module)
