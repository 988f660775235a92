"""Embeddings, indexing and the loss of classes, against eager, and the ops fused with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import shardc.runtime.operators.flat_index  # noqa: F401, defines the operator
from shardc.backends.eager.interpreter import run
from shardc.diagnostics.oracle import ExecutionFailed
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.runtime.errors import IndexOutOfRange

from .conftest import assert_near, traced

aten = torch.ops.aten
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
TABLE = torch.linspace(-3, 3, 7 * 5 * 4).reshape(7, 5, 4)
READS = ("embedding", "gather", "index", "index_select", "nll_loss2d_forward", "nll_loss_forward")
INDEX = torch.tensor([[0, 3], [2, 1], [3, 3]])

GATHERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "embedding": lambda w, i: aten.embedding(w[:, 0], i),
    "embedding of a transposed table": lambda w, i: aten.embedding(w[:, 0].t(), i),
    "embedding by one index": lambda w, i: aten.embedding(w[0], i[0, 0]),
    "index_select": lambda w, i: aten.index_select(w, 1, i[0]),
    "index_select of the last dim": lambda w, i: aten.index_select(w, -1, i[:, 0]),
    "index": lambda w, i: w[i],
    "index from the end": lambda w, i: w[:, i[0] - 4],
    "index of what is made": lambda w, i: (w + 1)[:, i],
    "index of rows that are made": lambda w, i: torch.softmax(w, -1)[:, i],
    "index in rows that are made": lambda w, i: torch.softmax(w, -1)[..., i],
    "index by int32": lambda w, i: w[i.to(torch.int32)],
    "gather": lambda w, i: torch.gather(w[:3, 0], 1, i),
    "gather of what is made": lambda w, i: torch.gather(torch.log_softmax(w[:3, 0], 1), 1, i),
}


def _around(f: Callable[..., Any]) -> Callable[..., Any]:
    """One more op behind each result, so that there is something to share a kernel with."""

    def both(*args: Tensor) -> list[Tensor]:
        made = f(*args)
        return [r + 1 for r in (made if isinstance(made, tuple) else (made,))]

    return both


def _check(fuse: Any, f: Callable[..., Any], *tensors: Tensor) -> Any:
    done = fuse(_around(f), *tensors, rounding="eager")
    assert done.kernels and not [op for op in done.stayed if op.split(".")[1] in READS], done.stayed
    for found, wanted in zip(done.results, _around(f)(*tensors), strict=True):
        assert_near(found, wanted)
    return done


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", GATHERS)
@DTYPES
def test_gathers(fuse: Any, name: str, dtype: torch.dtype) -> None:
    _check(fuse, GATHERS[name], TABLE.to(dtype), INDEX)


def _beside_mean(x: Tensor) -> Tensor:
    return x + F.avg_pool2d(x, 3, 1, 1)


def _beside_largest(x: Tensor) -> Tensor:
    return x + F.max_pool2d(x, 3, 1, 1)


AGAIN: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "cheap ops in windows": (lambda x: _beside_mean(x * 2 + 1), 1),
    "expensive ops in windows": (lambda x: _beside_mean(x.tanh()), 2),
    "expensive ops and cheap ones": (lambda x: _beside_mean(x.tanh() * 2), 2),
    "an expensive op of fewer elements": (lambda x: _beside_mean(x * x[:, :, :1, :1].exp()), 1),
    "windows of windows": (lambda x: _beside_largest(F.max_pool2d(x, 3, 1, 1)), 2),
    "one read": (lambda x: x.tanh() + torch.roll(x.tanh(), 1, -1), 1),
}


@pytest.mark.parametrize("name", AGAIN)
def test_expensive_ops_are_not_computed_for_each_read(fuse: Any, name: str) -> None:
    f, kernels = AGAIN[name]
    done = fuse(f, torch.randn(2, 8, 32, 32))
    assert len(done.kernels) == kernels and set(done.stayed) <= {"aten.slice.Tensor"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(1, 1), (7, 129), (129, 7), (127, 1), (3,)], ids=str)
@pytest.mark.parametrize("reduction", [0, 1, 2], ids=["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@DTYPES
def test_losses(
    fuse: Any, shape: tuple[int, ...], reduction: int, weighted: bool, dtype: torch.dtype
) -> None:
    x = torch.linspace(-2, 2, torch.Size(shape).numel()).reshape(shape).sin().to(dtype)
    target = torch.arange(x[..., 0].numel()).reshape(shape[:-1]) % shape[-1]
    weight = [torch.linspace(0.5, 2, shape[-1]).to(dtype)] * weighted

    def loss(x: Tensor, target: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return aten.nll_loss_forward(aten._log_softmax(x, -1, False), target, weight, reduction, 2)

    _check(fuse, loss, x, target, *weight)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses_of_images(fuse: Any, reduction: int) -> None:
    target = torch.arange(18).reshape(2, 3, 3) % 5
    _check(
        fuse,
        lambda x, t: aten.nll_loss2d_forward(x * 2, t, None, reduction, 4),
        torch.randn(2, 5, 3, 3),
        target,
    )


def test_a_loss_without_targets_is_nan_as_in_eager(fuse: Any) -> None:
    def loss(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return aten.nll_loss_forward(aten._log_softmax(x, 1, False), target, None, 1, -100)

    done = _check(fuse, loss, torch.randn(4, 3), torch.full((4,), -100))
    assert done.results[0].isnan()


def test_a_loss_sees_nan_and_infinity_of_its_classes_alone(fuse: Any) -> None:
    x = torch.zeros(4, 3)
    x[0, 1], x[1, 2], x[2, 0] = float("nan"), float("inf"), -float("inf")
    _check(fuse, lambda x, t: aten.nll_loss_forward(x * 2, t, None, 0, -100), x, torch.tensor([0, 2, 0, 1]))


def test_cross_entropy_writes_no_probabilities(fuse: Any) -> None:
    done = fuse(torch.nn.functional.cross_entropy, torch.randn(6, 5), torch.arange(6) % 5)
    assert done.kernels == [("aten._log_softmax", "aten.nll_loss_forward")] and not done.stayed


def test_an_embedding_alone_stays_a_call(fuse: Any) -> None:
    assert fuse(aten.embedding, TABLE[0], INDEX).stayed == ["aten.embedding"]


def test_an_embedding_is_part_of_the_norm_that_reads_it(fuse: Any) -> None:
    def normed(w: Tensor, i: Tensor, g: Tensor) -> Tensor:
        return aten.native_layer_norm(aten.embedding(w, i), [4], g, None, 1e-5)[0]

    done = fuse(normed, TABLE[0], INDEX, torch.ones(4))
    assert done.kernels == [("aten.embedding", "aten.native_layer_norm")]


def test_embeddings_by_indices_of_different_dims_are_one_kernel(fuse: Any) -> None:
    """But for a check: those of [2, 3] and of [1, 3] indices are sums over different dims."""

    def embedded(w: Tensor, i: Tensor, p: Tensor, g: Tensor) -> Tensor:
        return aten.native_layer_norm(aten.embedding(w, i) + aten.embedding(w * 2, p), [4], g, None, 1e-5)[0]

    done = fuse(embedded, TABLE[0], INDEX.t().contiguous(), torch.tensor([[0, 1, 2]]), torch.ones(4))
    assert not [op for op in done.stayed if op == "aten.embedding"]
    assert {"aten.embedding", "aten.add.Tensor", "aten.native_layer_norm"} <= set(max(done.kernels, key=len))


@pytest.mark.parametrize(
    ("f", "index", "message"),
    [
        (lambda w, i: aten.embedding(w, i) + 1, [1, 5], "index out of range in self"),
        (lambda w, i: aten.embedding(w, i) + 1, [-1, 4], "index out of range in self"),
        (lambda w, i: w[i] + 1, [-6, 0], "index -6 is out of bounds for dimension 0 with size 5"),
        (lambda w, i: w[:, i] + 1, [4, 0], "index 4 is out of bounds for dimension . with size 4"),
        (
            lambda w, i: aten.nll_loss_forward(w[:2] + 1, i, None, 1, -100)[0] + 1,
            [4, -100],
            "Target 4 is out of bounds.",
        ),
    ],
)
def test_an_index_out_of_range_is_the_error_that_eager_raises(f: Any, index: list[int], message: str) -> None:
    tensors = [torch.ones(5, 4), torch.tensor(index)]
    with pytest.raises((IndexError, RuntimeError), match=message):
        f(*tensors)
    module = traced(f, tensors)
    fuse_module(module)
    assert '"kern.kernel"' in str(module)
    with pytest.raises(ExecutionFailed, match=message) as failed:
        run(module, [[t] for t in tensors])
    assert isinstance(failed.value.__cause__, IndexOutOfRange)


@pytest.mark.parametrize(
    ("f", "shape", "kernels"),
    [
        (lambda x, i: x[i], [64], [("aten.index.Tensor",)]),
        (lambda x, i: x[i], [2], []),
        (lambda x, i: x.gather(0, i), [64, 80], [("aten.gather",)]),
        (lambda x, i: x.gather(1, i), [400, 64], []),
        (lambda x, i: x.index_select(0, i), [64], []),
    ],
)
def test_indexing_by_tensors_is_a_kernel_alone_if_it_finds_many_elements(
    fuse: Any, f: Any, shape: list[int], kernels: Any
) -> None:
    assert fuse(f, torch.randn(400, 80), torch.randint(80, shape)).kernels == kernels


def test_the_index_of_several_dims_is_a_kernel_beside_that_of_its_sum(fuse: Any) -> None:
    def f(x: Tensor, i: Tensor, j: Tensor, y: Tensor) -> Tensor:
        flat = torch.ops.shardc.flat_index([i, j], [9, 40], 0)
        return torch.ops.aten.index_put(x.reshape(360, 32), [flat], y, True)

    i, j = torch.randint(-9, 9, (500,)), torch.randint(-40, 40, (500,), dtype=torch.int32)
    done = fuse(f, torch.zeros(9, 40, 32), i, j, torch.randn(500, 32))
    assert sorted(done.kernels) == [("aten.index_put",), ("shardc.flat_index",)]
    module = traced(f, tensors := [torch.zeros(9, 40, 32), i, j + 40, torch.randn(500, 32)])
    fuse_module(module)
    with pytest.raises(ExecutionFailed, match="out of bounds for dimension 1 with size 40"):
        run(module, [[t] for t in tensors])


def test_the_loss_is_part_of_the_kernel_of_its_gradient(fuse: Any) -> None:
    """But for the total weight, which the gradient needs first: the probabilities are not written."""

    def step(x: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        x = x.detach().requires_grad_()
        loss = torch.nn.functional.cross_entropy(x, target)
        return loss.detach(), *torch.autograd.grad(loss, x)

    done = fuse(step, torch.randn(60, 512), torch.arange(60))
    weight, whole = done.kernels
    assert weight == ("aten.nll_loss_forward",) and not done.stayed
    assert {"aten._log_softmax", "aten.nll_loss_forward", "aten._log_softmax_backward_data"} <= set(whole)
