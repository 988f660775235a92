"""Batches as trees of named leaves."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from shardc.runtime.batch import check_leaf, leaves_of
from shardc.runtime.comm.layout import Leaf
from shardc.runtime.errors import BatchMismatch

X, Y = torch.zeros(2), torch.ones(3)
TREE = {
    "mapping": {
        "ids": {"leaf": "ids"},
        "deep": {
            "sequence": [{"leaf": "deep.0"}, {"constant": None}, {"constant": 3}, {"repr": "torch.float32"}]
        },
    }
}
GOOD = {"ids": X, "deep": [Y, None, 3, torch.float32]}


def test_leaves() -> None:
    assert leaves_of(GOOD, TREE) == {"ids": X, "deep.0": Y}
    assert leaves_of(UserDict(GOOD), TREE)["ids"] is X
    assert leaves_of(X, {"sequence": [{"leaf": "0"}]}) == {"0": X}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": None}, "leaf 'ids' is NoneType None; the program takes a tensor"),
        ({"deep": [Y, None, 3]}, "leaf 'deep' is a list of 3; the program takes a list or tuple of 4"),
        ({"deep": [Y, None, 4, torch.float32]}, "leaf 'deep.2' is int 4; the program takes 3, a constant"),
        ({"deep": [Y, None, 3.0, torch.float32]}, "leaf 'deep.2' is float 3.0"),
        ({"deep": [Y, None, True, torch.float32]}, "leaf 'deep.2' is bool True"),
        ({"deep": [Y, X, 3, torch.float32]}, r"leaf 'deep.1' is a tensor \[2\]; the program takes None"),
        ({"deep": [Y, None, 3, torch.float64]}, "leaf 'deep.3' .* takes torch.float32"),
        ({"more": X}, "has the unknown leaf 'more'"),
    ],
)
def test_misfits_name_the_leaf(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BatchMismatch, match=message):
        leaves_of({**GOOD, **change}, TREE)


def test_missing_leaf_and_no_mapping() -> None:
    with pytest.raises(BatchMismatch, match="lacks leaf 'deep'"):
        leaves_of({"ids": X}, TREE)
    with pytest.raises(BatchMismatch, match="takes a mapping with ids, deep"):
        leaves_of([X], TREE)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"ids": torch.zeros(99), "deep": torch.ones(2)}, "a tensor [2]"),
        ([torch.zeros(99)] * 3, "is a list of 3"),
        ({"ids": {"a": torch.zeros(99)}, "deep": {}}, "a dict with a"),
    ],
)
def test_containers_are_told_by_their_parts(batch: object, said: str) -> None:
    """No message shows the numbers of a user's tensors."""
    tree = {"mapping": {"ids": {"leaf": "ids"}, "deep": {"sequence": [{"leaf": "deep.0"}]}}}
    with pytest.raises(BatchMismatch) as caught:
        leaves_of(batch, tree)
    assert said in str(caught.value) and "tensor(" not in str(caught.value)


def test_a_leaf_has_the_dtype_and_shape_of_the_program() -> None:
    leaf = Leaf("ids", "input", (2,), torch.float32, ((),))
    check_leaf({"ids": X}, leaf, (2,))
    takes = r"the program takes float32 \[2\]"
    with pytest.raises(BatchMismatch, match=rf"leaf 'ids' is float64 \[2\]; {takes}"):
        check_leaf({"ids": X.double()}, leaf, (2,))
    with pytest.raises(BatchMismatch, match=rf"leaf 'ids' is float32 \[1\]; {takes}"):
        check_leaf({"ids": X[:1]}, leaf, (2,))
    with pytest.raises(BatchMismatch, match="lacks leaf 'ids'"):
        check_leaf({}, leaf, (2,))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (X.to_sparse(), "a tensor of layout torch.sparse_coo"),
        (X.reshape(1, 2).to_sparse_csr(), "a tensor of layout torch.sparse_csr"),
        (X.to_mkldnn(), "a tensor of layout torch._mkldnn"),
        (torch.quantize_per_tensor(X, 0.1, 0, torch.quint8), "a quantized tensor"),
        (torch.nested.nested_tensor([X, X]), "a nested tensor"),
        (X.to("meta"), "on the meta device"),
        (FakeTensorMode().from_tensor(X), "a FakeTensor"),
    ],
)
def test_a_tensor_whose_elements_cannot_be_read(value: torch.Tensor, said: str) -> None:
    with pytest.raises(BatchMismatch, match=f"leaf 'ids' is {said}; the program takes dense tensors"):
        check_leaf({"ids": value}, Leaf("ids", "input", (2,), torch.float32, ((),)), (2,))
