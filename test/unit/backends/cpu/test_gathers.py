"""Compiled kernels that read at computed indices, against eager in f64, and the errors of their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_lowered_graphs import check
from torch import Tensor

from shardc.runtime.errors import IndexOutOfRange

aten = torch.ops.aten
SIZES = [1, 7, 127, 129]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("classes", SIZES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("keeps", [False, True], ids=["loss", "probabilities too"])
def test_cross_entropy(classes: int, reduction: str, keeps: bool, threads: int) -> None:
    target = torch.arange(129) % classes
    target[5:9] = -100

    def loss(x: Tensor, target: Tensor) -> list[Tensor]:
        logs = F.log_softmax(x, 1)
        return [F.nll_loss(logs, target, reduction=reduction)] + [logs] * keeps

    check(loss, torch.randn(129, classes), target, kernels=1)


@pytest.mark.parametrize("width", SIZES)
def test_embedding_and_norm(width: int, threads: int) -> None:
    """The check of the indices, a sum over rows, stands beside the sums of a row."""

    def normed(w: Tensor, i: Tensor, g: Tensor) -> Tensor:
        return F.layer_norm(aten.embedding(w, i) * 2, (width,), g, g)

    check(normed, torch.randn(13, width), torch.randint(13, (3, 43)), torch.randn(width), kernels=1)


GATHERS: dict[str, Callable[..., Any]] = {
    "rows": lambda w, i: w[i] * 2,
    "columns": lambda w, i: w[:, i] * 2,
    "the last dim": lambda w, i: w[:, :, i] * 2,
    "a transposed table": lambda w, i: w.transpose(0, 2)[i] * 2,
    "what is made": lambda w, i: (w + 1)[:, i] * 2,
    "rows that are made": lambda w, i: torch.softmax(w, -1)[:, i] * 2,
    "rows that are made and results": lambda w, i: (made := torch.softmax(w, -1), made[i] * 2),
    "sums of products": lambda w, i: (w[i] * w[0]).sum(-1),
    "gather": lambda w, i: torch.gather(torch.log_softmax(w[0, :3], 1), 1, i),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_gathers(name: str, dtype: torch.dtype, threads: int) -> None:
    if dtype != torch.float32 and any(word in name for word in ("made", "sums", "gather")):
        dtype = torch.float64
    check(GATHERS[name], torch.randn(6, 7, 5).to(dtype), torch.tensor([[0, 4], [2, 1], [3, 3]]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", SIZES)
def test_parts_of_different_sizes(size: int, threads: int) -> None:
    def joined(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return F.layer_norm(torch.cat([x.expand(3, 1, 33), y * 2, x * 3], 1) + p, (33,))

    def gradient(y: Tensor) -> Tensor:
        return aten.slice_backward(y * 2, [3, size + 3, 33], 1, 2, size + 2, 1) + 1

    x, y, p = torch.randn(3, 1, 33), torch.randn(3, size, 33), torch.randn(size + 2, 33)
    check(joined, x, y, p)
    check(gradient, y)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("index", "message"), [(9, "index out of range in self"), (-1, "index out of range in self")]
)
def test_a_call_raises_for_an_index_out_of_range(index: int, message: str, threads: int) -> None:
    table, good = torch.randn(9, 4), torch.zeros(200, dtype=torch.int64)
    bad = good.clone()
    bad[150] = index
    compiled = torch.compile(lambda w, i: aten.embedding(w, i) * 2 + 1, backend="shardc")
    torch.testing.assert_close(compiled(table, good), table[good] * 2 + 1)
    with pytest.raises(IndexOutOfRange, match=message):
        compiled(table, bad)
    torch.testing.assert_close(compiled(table, good), table[good] * 2 + 1)


def test_symbolic_sizes(threads: int) -> None:
    loss = torch.compile(
        lambda x, t, w: F.cross_entropy(aten.embedding(w, x) * 2, t), backend="shardc", dynamic=True
    )
    for rows, classes in ((5, 7), (129, 7), (64, 33)):
        x, target, table = (
            torch.randint(11, (rows,)),
            torch.randint(classes, (rows,)),
            torch.randn(11, classes),
        )
        torch.testing.assert_close(loss(x, target, table), F.cross_entropy(table[x] * 2, target))
    with pytest.raises(IndexOutOfRange, match=r"Target 33 is out of bounds\."):
        loss(x, target.fill_(33), table)
