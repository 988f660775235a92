"""Cross entropies of linear layers whose classes devices share out: kernels that hold no logits, and the same
step.

What devices tell each other of a row is its largest logit, the sum of exponentials and the logarithm of its
class, as without kernels.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_mlir import ir
from transformers import LlamaConfig, LlamaForCausalLM

from shardc.backends.eager.proof.compare import prove_step
from shardc.compiler.memory import step_peak
from shardc.dialects.context import new_context
from shardc.frontend.step.capture import capture_step
from shardc.passes.fuse.grouping.capabilities import ALL
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.step.shard import compile_capture
from shardc.step.sharding.mesh import make_mesh
from shardc.step.sharding.plan import model_plan_of
from shardc.step.values import example_inputs

BATCH, LENGTH, SIZE = 4, 6, 32
FORWARD, BACKWARD = '"kern.linear_cross_entropy"', '"kern.linear_cross_entropy_backward"'


def llama(words: int, tied: bool = False, bias: bool = False) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=SIZE,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config)
    if bias:
        model.lm_head = torch.nn.Linear(SIZE, words)
    return model


def traced(
    mesh: dict[str, int],
    plan: str,
    *,
    micro_batches: int = 1,
    words: int = 96,
    dtype: torch.dtype = torch.float32,
    tied: bool = False,
    bias: bool = False,
    **settings: Any,
) -> tuple[Any, ir.Module, Any]:
    """The rank program, it again to be fused, and example inputs of a Llama whose cross entropy has
    ``settings``.
    """
    model = llama(words, tied, bias).to(dtype)
    batch = {"input_ids": torch.randint(words - 1, (BATCH, LENGTH))}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(out: Any, given: Any) -> Tensor:
        labels = F.pad(given["input_ids"], (0, 1), value=-100)[..., 1:].contiguous()
        weight = torch.arange(1.0, words + 1) if settings.get("weight") else None
        return F.cross_entropy(
            out.logits.float().view(-1, words), labels.view(-1), **{**settings, "weight": weight}
        )

    capture = capture_step(model, optimizer, batch, loss=loss, context=new_context())
    mesh_ = make_mesh(mesh, micro_batches)
    compiled = compile_capture(capture, mesh_, plan, model_plan=model_plan_of(model))
    return capture.module, compiled.rank_module, example_inputs(capture, optimizer, batch)


def reductions(module: ir.Module) -> int:
    return str(module).count('"dist.all_reduce"')


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("mesh", "plan", "options"),
    [
        ({"tensor": 2}, "tensor", {}),
        ({"tensor": 4}, "tensor", {"reduction": "sum", "dtype": torch.bfloat16}),
        ({"data": 2, "tensor": 2}, "data*tensor", {"bias": True}),
        ({"data": 2, "tensor": 2}, "zero3*tensor", {"tied": True, "micro_batches": 2}),
        ({"tensor": 2}, "sequence", {}),
        (
            {"data": 2, "tensor": 2},
            "zero3*sequence",
            {"label_smoothing": 0.1, "ignore_index": 3, "micro_batches": 2},
        ),
        ({"data": 2, "tensor": 2}, "zero3*tensor", {"label_smoothing": 0.1, "bias": True}),
        ({"tensor": 2}, "tensor", {"weight": True}),
    ],
    ids=[
        "tensor",
        "sum bf16",
        "data tensor bias",
        "zero3 tensor tied micro-batches",
        "sequence",
        "smoothed zero3 sequence micro-batches",
        "smoothed zero3 tensor bias",
        "weighted",
    ],
)
def test_it_is_the_same_step(mesh: dict[str, int], plan: str, options: dict[str, Any]) -> None:
    whole, module, inputs = traced(mesh, plan, **options)
    before, sent = step_peak(module).size_bytes, reductions(module)
    fuse_module(module, matmuls="generated", capabilities=ALL)
    module.operation.verify()
    text = str(module)
    assert text.count(FORWARD) == text.count(BACKWARD) == 1
    assert not any(
        gone in text for gone in ("torch.aten.amax ", "torch.aten.scatter.src ", "torch.aten.gather ")
    )
    rows = BATCH * LENGTH // mesh.get("data", 1) // options.get("micro_batches", 1)
    classes = 96 // mesh["tensor"]
    made = [
        line.partition("->")[2]
        for line in text.splitlines()
        if "torch.aten." in line and ".expand " not in line
    ]
    assert not any(f"[{rows},{classes}],f32" in types for types in made)
    assert reductions(module) == sent
    assert step_peak(module).size_bytes < before
    proof = prove_step(whole, module, inputs, steps=2)
    assert proof.passed, proof.render()


def test_a_forward_alone() -> None:
    """Of parameters that need no gradients: nothing of the softmax but its numbers of rows is made."""
    model = llama(96)
    model.requires_grad_(False)
    model.model.norm.weight.requires_grad_(True)
    batch = {"input_ids": torch.randint(96, (BATCH, LENGTH)), "labels": torch.randint(96, (BATCH, LENGTH))}
    optimizer = torch.optim.SGD([model.model.norm.weight], lr=0.1)
    capture = capture_step(model, optimizer, batch, context=new_context())
    compiled = compile_capture(
        capture, make_mesh({"tensor": 2}, 1), "tensor", model_plan=model_plan_of(model)
    )
    module = compiled.rank_module
    fuse_module(module, matmuls="generated", capabilities=ALL)
    assert str(module).count(FORWARD) == str(module).count(BACKWARD) == 1
    assert "tensor<48x32xf32>)" not in next(
        line for line in str(module).splitlines() if "kern.yield" in line and "24x32" in line
    )
    proof = prove_step(capture.module, module, example_inputs(capture, optimizer, batch), steps=2)
    assert proof.passed, proof.render()


def test_labels_are_not_made_beside_what_waits_for_the_softmax() -> None:
    """The classes of rows, of which the kernel makes its sums too, are calls of their own."""
    _, module, _ = traced({"tensor": 2}, "tensor", label_smoothing=0.1)
    fuse_module(module, matmuls="generated", capabilities=ALL)
    lines = str(module).splitlines()
    index = next(n for n, line in enumerate(lines) if "torch.aten.clamp " in line and "[24,1],si64" in line)
    assert index < next(n for n, line in enumerate(lines) if FORWARD in line)


def test_classes_that_do_not_divide() -> None:
    _, module, _ = traced({"tensor": 2}, "tensor", words=63)
    decisions = fuse_module(module, matmuls="generated", capabilities=ALL)
    assert FORWARD not in str(module)
    assert any(
        "logits are masked, as when classes do not divide evenly over devices" in d.why
        for _, _, d in decisions
    )


@pytest.mark.slow
def test_cpus_have_no_such_kernels() -> None:
    whole, module, inputs = traced({"data": 2, "tensor": 2}, "zero3*tensor", label_smoothing=0.1)
    fuse_module(module)
    assert FORWARD not in str(module)
    proof = prove_step(whole, module, inputs, steps=1)
    assert proof.passed, proof.render()
