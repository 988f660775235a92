"""Sums at several computed indices as sums at one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.frontend.graph.flat_indices import flat_index_table

aten = torch.ops.aten
put = aten._unsafe_index_put
ROWS, COLUMNS = torch.tensor([[0], [4], [-1]]), torch.tensor([3, -2, 3, 0])
IMAGE = torch.linspace(-1, 1, 2 * 3 * 5 * 6).reshape(2, 3, 5, 6)

FLAT: dict[str, tuple[Callable[..., Tensor], tuple[int, ...]]] = {
    "pixels": (lambda x, y: put(x, [None, None, ROWS, COLUMNS], y, True), (2, 3, 3, 4)),
    "one value for all": (lambda x, y: put(x, [None, None, ROWS, COLUMNS], y, True), (3, 1)),
    "dims before others": (lambda x, y: put(x, [ROWS % 2, COLUMNS % 3], y, True), (3, 4, 5, 6)),
    "checked": (lambda x, y: aten.index_put(x, [None, None, ROWS, COLUMNS], y, True), (2, 3, 3, 4)),
    "dims between others": (lambda x, y: put(x, [None, COLUMNS % 3, COLUMNS], y, True), (2, 4, 6)),
}


def _indices(f: Callable[..., Tensor], *tensors: Tensor) -> list[int]:
    """Return the number of indices of each sum in the decomposed trace of ``f``."""
    graph = make_fx(f, decomposition_table=flat_index_table())(*tensors).graph
    sums = [n for n in graph.nodes if n.target in (aten.index_put.default, put.default)]
    return [sum(index is not None for index in node.args[1]) for node in sums]


@pytest.mark.parametrize("name", FLAT)
def test_sums_at_several_indices_have_one(name: str) -> None:
    f, shape = FLAT[name]
    values = torch.linspace(0, 1, torch.Size(shape).numel()).reshape(shape)
    assert _indices(f, IMAGE, values) == [1]
    traced = make_fx(f, decomposition_table=flat_index_table())(IMAGE, values)
    torch.testing.assert_close(traced(IMAGE, values), f(IMAGE, values))


@pytest.mark.parametrize(
    ("f", "indices"),
    [
        (lambda x, y: put(x, [None, None, ROWS, COLUMNS], y, False), 2),
        (lambda x, y: put(x, [COLUMNS % 2, None, COLUMNS], y[:, 0, 0, 0, None, None], True), 2),
        (lambda x, y: put(x, [COLUMNS % 2], y[:, 0, 0, 0, None, None, None], True), 1),
        (lambda x, y: aten.index_put(x, [None, None, ROWS, COLUMNS], y[0, 0, 0, 0]), 2),
    ],
    ids=["unsafe writes", "dims apart", "one index", "writes"],
)
def test_others_stay(f: Callable[..., Tensor], indices: int) -> None:
    assert _indices(f, IMAGE, torch.zeros(4, 1, 1, 1) if indices == 1 else torch.zeros(4, 3, 3, 4)[:1]) == [
        indices
    ]


def test_an_index_out_of_bounds_is_named_with_its_dim() -> None:
    """ATen numbers the indexed dims alone."""
    f = lambda x, y, i, j: aten.index_put(x, [None, i, j], y, True)  # noqa: E731
    given = torch.zeros(2, 5, 6), torch.ones(2, 2), torch.tensor([0, 4]), torch.tensor([7, 2])
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 1 with size 6"):
        f(*given)
    traced = make_fx(f, tracing_mode="fake", decomposition_table=flat_index_table())(*given)
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 2 with size 6"):
        traced(*given)
