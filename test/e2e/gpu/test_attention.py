"""Attention under ``torch.compile`` on a GPU that is not here: what becomes of each form of call, and what is
said. That values are those of eager, ``cases/attention.py`` shows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch.aot_autograd import aot_module_simplified
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

pytest.importorskip("triton", reason="Triton is not installed: kernels for GPUs are not made")

from shardc.backends import registry
from shardc.backends.triton.target import TritonTarget
from shardc.cost.machine import GPUS
from shardc.dynamo import compile_graph as graph_compiler
from shardc.dynamo import explanations as fusion
from shardc.dynamo import program as graph_program
from shardc.dynamo import trace
from shardc.dynamo.joint_partition import SAVING, partition
from shardc.dynamo.settings import Settings
from shardc.frontend.operators.attention_layout import drop_layouts, layouts

OPS = ("shardc.attention.default", "shardc.attention_backward.default")
GENERATED = Settings.of({"matmuls": "generated"})


@pytest.fixture(autouse=True)
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU is an H100."""
    monkeypatch.setattr(registry, "target_for", lambda _: TritonTarget(GPUS["sm_90"]))


def graphs(
    function: Callable[..., Any], *inputs: Tensor, settings: Settings = GENERATED
) -> list[GraphModule]:
    """Forward and backward, as :mod:`shardc.dynamo.backend` cuts them."""
    found: list[GraphModule] = []

    def cut(joint: GraphModule, inputs: Any, **given: Any) -> Any:
        found.extend(partition(joint, inputs, **given))
        return found

    def backend(graph: GraphModule, inputs: Any) -> Any:
        compilers = {"fw_compiler": boxed_nop, "bw_compiler": boxed_nop}
        with trace.attention_of_targets(settings, inputs):
            return aot_module_simplified(graph, inputs, **compilers, decompositions=SAVING, partition_fn=cut)

    torch._dynamo.reset()
    torch.compile(function, backend=backend)(*inputs)
    return found


def calls(found: list[GraphModule]) -> list[str]:
    return [str(n.target) for graph in found for n in graph.graph.nodes if n.op == "call_function"]


def given(*shape: int, dtype: torch.dtype = torch.float32, count: int = 3) -> list[Tensor]:
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(count)]


def beside(q: Tensor, k: Tensor, v: Tensor, **settings: Any) -> Tensor:
    return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), **settings)


def test_forward_and_backward_are_one_op_each_and_nothing_is_copied() -> None:
    """What eager sees as a view is one, and the backward keeps that same tensor, laid out so."""
    found = graphs(lambda *x: beside(*x, is_causal=True).transpose(1, 2).view(2, 9, 32), *given(2, 9, 4, 8))
    assert [t for t in calls(found) if t.startswith("shardc.")] == list(OPS)
    forward, backward = found
    (copy,) = layouts(forward.graph)
    kept = forward.graph.output_node().args[0]
    assert isinstance(kept, (tuple, list))
    assert [node.args[1] for node in kept if node.target is getitem] == [1], (
        "of what attention gives, lse alone is kept"
    )
    (laid,) = (node for node in kept if node.args and node.args[0] is copy)
    assert laid.meta["val"].stride() == (288, 8, 32, 1)
    for graph in (forward.graph, backward.graph):
        drop_layouts(graph)
        graph.lint()
    assert not any("clone" in t or "mm" in t for t in calls(found))


def test_a_result_lies_as_eagers_does() -> None:
    """Also where it is returned, and where a view of it is, too."""
    for function in (
        beside,
        lambda *x: (beside(*x), beside(*x).transpose(1, 2)),
        lambda *x: [y := beside(*x), y[0]],
    ):
        inputs = given(2, 9, 4, 8)
        wanted = function(*inputs)
        torch._dynamo.reset()

        def backend(graph: GraphModule, inputs: Any) -> Any:
            with trace.attention_of_targets(GENERATED, inputs):
                return aot_module_simplified(graph, inputs, fw_compiler=boxed_nop, bw_compiler=boxed_nop)

        found = torch.compile(function, backend=backend)(*inputs)
        pairs = (
            list(zip(found, wanted, strict=True)) if isinstance(wanted, tuple | list) else [(found, wanted)]
        )
        for ours, theirs in pairs:
            assert ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs)


def test_autocast_is_followed() -> None:
    def function(*x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.scaled_dot_product_attention(*x)

    forward, _ = graphs(function, *given(1, 2, 9, 8))
    (op,) = forward.graph.find_nodes(op="call_function", target=torch.ops.shardc.attention.default)
    assert {value.meta["val"].dtype for value in op.all_input_nodes} == {torch.bfloat16}


def _math(*x: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*x)


LEFT: dict[str, tuple[Callable[..., Any], list[Tensor], str]] = {
    "dropout": (
        lambda *x: F.scaled_dot_product_attention(*x, dropout_p=0.5),
        given(1, 2, 9, 8),
        "its probabilities are dropped out",
    ),
    "learned": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m[..., :9]),
        given(1, 2, 9, 8, count=3) + given(1, 2, 9, 9, count=1),
        "its mask needs a gradient",
    ),
    "f64": (
        F.scaled_dot_product_attention,
        given(1, 2, 9, 8, dtype=torch.float64),
        "there are no kernels for torch.float64",
    ),
    "math": (_math, given(1, 2, 9, 8), "plain ops alone are allowed (sdpa_kernel)"),
    "vmap": (
        torch.func.vmap(lambda *x: F.scaled_dot_product_attention(*x)),
        given(2, 1, 2, 9, 8),
        "it is inside of a transform of torch.func",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_has_no_kernel_stays_pytorchs_and_is_said(name: str) -> None:
    function, inputs, why = LEFT[name]
    with fusion.collect_fusion():
        fusion.forget_choices()
        found = graphs(lambda *x: function(*x).sin(), *inputs)
        ((op, verdict),) = fusion._choices.get()
        fusion.forget_choices()
    assert not any(target in OPS for target in calls(found))
    assert verdict.why == f"it stays PyTorch's: {why}" and not verdict.generated
    assert op.where is not None and "test_attention.py:" in op.where


def _step(q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> list[Tensor]:
    """Forward, and what its autograd calls: PyTorch's engine has no thread for a GPU that is not here."""
    shown = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    out, lse = torch.ops.shardc.attention(q, k, v, None, True, 0.125)
    return [shown, *torch.ops.shardc.attention_backward(grad, q, k, v, None, out, lse, True, 0.125, 0)]


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", GPUS)
def test_cuda_tensors_have_compiled_kernels(
    target: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On fake tensors of a GPU: forward and backward are in the program, and compiled ahead of time."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(registry, "target_for", lambda _: TritonTarget(GPUS[target]))
    loaded: list[Any] = []
    monkeypatch.setattr(graph_program, "load", lambda *given: loaded.append(given) or (lambda *_: None))
    with FakeTensorMode():
        q, grad = (torch.empty(2, 4, 160, 64, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        k, v = (torch.empty(2, 2, 160, 64, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        with trace.attention_of_targets(GENERATED, [q]):
            graph = make_fx(_step, tracing_mode="fake")(q, k, v, grad)
    graph_compiler.compile_graph(GENERATED, None, "forward", graph)
    ((text, library, _),) = loaded
    assert (
        'kernel("attention_0"' in text and 'kernel("attention_backward_' in text and "ops.shardc" not in text
    )
    figures = json.loads((library.folder / "figures.json").read_text())
    functions = [f for name, found in figures.items() if name.startswith("attention") for f in found]
    spills = {
        f["name"]: f["spill_bytes"] for f in functions if f["spill_bytes"] > 16
    }  # dk and dv have 16 on sm_100
    assert len(functions) == 4 and not spills, spills
    assert all(f["matrix_ops"] for f in functions if not f["name"].endswith("_delta"))


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("op", ["attention.cudnn", "attention_backward", "linear_cross_entropy"])
def test_programs_define_the_ops_that_they_call(op: str) -> None:
    """In a process that finds them on disk, and traces nothing."""
    text = f"import torch\nop = torch.ops.shardc.{op}\ndef graph(rank, inputs): return op"
    script = f"from shardc.dynamo.program import load\nassert load({text!r})(None, []) is not None"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "settings",
    [Settings.of({"matmuls": "extern"}), Settings.of({"externs": "aten"}), Settings.of({"fuse": False})],
)
def test_settings_that_want_calls_leave_pytorchs(settings: Settings) -> None:
    assert not any(target in OPS for target in calls(graphs(beside, *given(2, 9, 4, 8), settings=settings)))
