"""Linear layers with a cross entropy behind them under ``torch.compile`` on a GPU that is not here: what is
replaced in the joint graph, and why the rest is not. That values are those of eager, ``cases/losses.py``
shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.backends.debugging import boxed_nop
from torch._dynamo.exc import BackendCompilerFailed
from torch._functorch.aot_autograd import aot_module_simplified
from torch.fx import GraphModule

pytest.importorskip("triton", reason="Triton is not installed: kernels for GPUs are not made")

import shardc.runtime.operators.linear_cross_entropy  # noqa: F401  (registers the op)
from shardc.backends.triton.target import TritonTarget
from shardc.cost.machine import GPUS
from shardc.dynamo import explanations as fusion
from shardc.dynamo.graph_losses import fuse_losses
from shardc.dynamo.joint_partition import SAVING, partition
from shardc.dynamo.settings import Settings
from shardc.passes.fuse.grouping.region import Verdict

OP = torch.ops.shardc.linear_cross_entropy.default
GENERATED = Settings.of({"matmuls": "generated"})
ROWS, CLASSES, SIZE = 64, 100, 32
Loss = Callable[[Tensor, Tensor, Tensor], Any]


def joint_graph(
    loss: Loss, rows: int, classes: int, size: int, dtype: torch.dtype, dynamic: bool = False
) -> GraphModule:
    """What AOTAutograd would cut; tensors are not touched."""
    found: list[GraphModule] = []

    def cut(joint: GraphModule, inputs: Any, **given: Any) -> Any:
        found.append(joint)
        raise RuntimeError("this is all that is wanted")

    def backend(graph: GraphModule, inputs: Any) -> Any:
        compilers = {"fw_compiler": boxed_nop, "bw_compiler": boxed_nop}
        return aot_module_simplified(graph, inputs, **compilers, decompositions=SAVING, partition_fn=cut)

    x, w = (torch.empty(n, size, dtype=dtype, requires_grad=True) for n in (rows, classes))
    torch._dynamo.reset()
    with pytest.raises(BackendCompilerFailed, match="all that is wanted"):
        torch.compile(loss, backend=backend, dynamic=dynamic)(x, w, torch.empty(rows, dtype=torch.int64))
    (joint,) = found
    return joint


def plain(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, w).float(), target)


def chosen(
    loss: Loss,
    settings: Settings = GENERATED,
    sizes: tuple[int, int, int] = (ROWS, CLASSES, SIZE),
    dtype: torch.dtype = torch.bfloat16,
    target: str = "sm_90",
    dynamic: bool = False,
) -> tuple[Verdict, GraphModule]:
    """What is said of the one loss, and the graph with what became of it."""
    joint = joint_graph(loss, *sizes, dtype, dynamic)
    with fusion.collect_fusion():
        fuse_losses(joint, settings, TritonTarget(GPUS[target]))
    ((op, verdict),) = fusion._choices.get()
    fusion.forget_choices()
    assert op.where is not None and "test_losses.py:" in op.where
    assert verdict.generated == any(node.target is OP for node in joint.graph.nodes)
    joint.graph.lint()
    return verdict, joint


FORMS: dict[str, Loss] = {
    "plain": plain,
    "rounded": lambda x, w, t: F.cross_entropy(F.linear(x, w), t),
    "a number a row": lambda x, w, t: (
        F.cross_entropy(F.linear(x, w).float(), t, reduction="none").square().sum()
    ),
    "in parts": lambda x, w, t: F.nll_loss(
        F.log_softmax(F.linear(x, w), -1, dtype=torch.float32), t, ignore_index=3
    ),
    "smoothed": lambda x, w, t: F.cross_entropy(F.linear(x, w).float(), t, label_smoothing=0.1),
    "batched": lambda x, w, t: F.cross_entropy(
        F.linear(x.view(4, -1, SIZE), w).float().view(-1, CLASSES), t, reduction="sum"
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", FORMS)
def test_no_logits_are_held(form: str) -> None:
    verdict, joint = chosen(FORMS[form])
    assert verdict == Verdict(True, "with its loss: as it was asked for")
    joint.recompile()
    forward, backward = partition(
        joint, [n.meta["val"] for n in joint.graph.find_nodes(op="placeholder")], num_fwd_outputs=1
    )
    for graph in (forward.graph, backward.graph):
        values = [n.meta["val"] for n in graph.nodes if isinstance(n.meta.get("val"), Tensor)]
        assert not any(CLASSES in value.shape and SIZE not in value.shape for value in values)
        assert sum("linear_cross_entropy" in str(node.target) for node in graph.nodes) == 1


def test_each_of_two_losses_becomes_an_op() -> None:
    def both(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
        return plain(x, w, target) + F.cross_entropy(F.linear(x.tanh(), w), target, reduction="sum")

    joint = joint_graph(both, ROWS, CLASSES, SIZE, torch.float32)
    fuse_losses(joint, GENERATED, TritonTarget(GPUS["sm_90"]))
    joint.graph.lint()
    assert sum(node.target is OP for node in joint.graph.nodes) == 2
    torch.manual_seed(0)
    given = [torch.randn(ROWS, SIZE), torch.randn(CLASSES, SIZE), torch.randint(CLASSES, (ROWS,))]
    leaves = [t.detach().requires_grad_() for t in given[:2]]
    loss = both(*leaves, given[2])
    loss.backward()
    found = torch.fx.Interpreter(joint).run(*given, torch.ones(()), enable_io_processing=False)
    torch.testing.assert_close(found[:3], [loss.detach(), leaves[0].grad, leaves[1].grad])


def _probabilities(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
    logp = F.log_softmax(F.linear(x, w).float(), -1)
    return F.nll_loss(logp, target) - (logp.exp() * logp).sum()


APART: dict[str, tuple[Loss, Settings, str]] = {
    "returned": (
        lambda x, w, t: (F.cross_entropy((y := F.linear(x, w)), t), y),
        GENERATED,
        "the logits are kept: the program returns them",
    ),
    "probabilities": (
        _probabilities,
        GENERATED,
        "the logarithms of all probabilities are kept: aten.exp reads them",
    ),
    "clipped": (
        lambda x, w, t: F.cross_entropy((y := F.linear(x, w).float()), t) + 1e-4 * y.square().mean(),
        GENERATED,
        "the logits are kept: aten.",
    ),
    "sums in f64": (
        lambda x, w, t: (
            F.nll_loss((y := F.log_softmax(F.linear(x, w).float(), -1)), t)
            - y.sum(1, dtype=torch.float64).mean()
        ),
        GENERATED,
        "the logarithms of all probabilities are kept: aten.sum.dim_IntList reads them",
    ),
    "in f64": (
        lambda x, w, t: F.cross_entropy(F.linear(x, w).double(), t),
        GENERATED,
        "the softmax is in torch.float64",
    ),
    "rounded on the way": (
        lambda x, w, t: F.cross_entropy(F.linear(x.float(), w.float()).bfloat16(), t),
        Settings.of({"matmuls": "generated", "rounding": "eager"}),
        "logits are rounded to torch.bfloat16",
    ),
    "turned": (
        lambda x, w, t: F.cross_entropy(x @ w.view(SIZE, CLASSES), t),
        GENERATED,
        "the weight is not [classes, size]",
    ),
    "eager": (
        plain,
        Settings.of({"matmuls": "generated", "rounding": "eager"}),
        "logits are rounded to torch.bfloat16",
    ),
    "edges": (
        plain,
        Settings.of({"forbid_fusion": ("mm+nll_loss_forward",)}),
        "edges name the calls of this graph",
    ),
    "aten": (plain, Settings.of({"externs": "aten"}), "matmuls are to stay calls"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", APART)
def test_why_logits_are_made_is_said(case: str) -> None:
    loss, settings, why = APART[case]
    verdict, _ = chosen(loss, settings)
    assert not verdict.generated and verdict.why.startswith(f"with its loss: {why}")


def test_symbolic_sizes_stay_calls() -> None:
    verdict, joint = chosen(plain, dynamic=True)
    assert verdict.why == "with its loss: sizes are known only at run time"
    assert any(node.target is torch.ops.aten.nll_loss_forward.default for node in joint.graph.nodes)


@pytest.mark.parametrize("sizes, generated", [((8192, 128256, 512), True), ((512, 32000, 8192), False)])
def test_models_of_costs_decide(sizes: tuple[int, int, int], generated: bool) -> None:
    """Many rows with small sizes cost little to multiply again; few rows with large ones cost more."""
    verdict, _ = chosen(plain, Settings(), sizes)
    assert verdict.generated == generated
    assert verdict.why.startswith("with its loss: estimated for sm_90: ") and "hold no logits" in verdict.why
