"""Rules of embedding lookups and their gradient, with a split vocabulary, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove


def indices(*shape: int, below: int = 8) -> torch.Tensor:
    return sample(*shape, dtype=torch.int64, below=below)


LOOKUPS = {
    "one row": ((sample(8, 4), indices()), "([v,e],[])->([e]) reduce={v}"),
    "tokens": ((sample(8, 4), indices(6)), "([v,e],[n0])->([n0,e]) reduce={v}"),
    "batch of tokens": ((sample(8, 4), indices(2, 6)), "([v,e],[n0,n1])->([n0,n1,e]) reduce={v}"),
    "odd vocabulary": ((sample(9, 4), indices(2, 6, below=9)), "([v,e],[n0,n1])->([n0,n1,e]) reduce={v}"),
    "padding row": ((sample(8, 4), indices(2, 6), 3), "([v,e],[n0,n1])->([n0,n1,e]) reduce={v}"),
    "bf16, int32": (
        (sample(8, 4, dtype=torch.bfloat16), indices(2, 6).int()),
        "([v,e],[n0,n1])->([n0,n1,e]) reduce={v}",
    ),
    "infinite rows of others": (
        (sample(8, 4).index_fill(0, torch.tensor([0, 7]), torch.inf), torch.tensor([1, 2, 5, 6])),
        "([v,e],[n0])->([n0,e]) reduce={v}",
    ),
}


@pytest.mark.parametrize(("args", "einsum"), LOOKUPS.values(), ids=LOOKUPS)
def test_embedding(args: tuple[Any, ...], einsum: str) -> None:
    proof = prove("aten.embedding", args, ways=(2, 4))
    assert str(proof.rule) == einsum
    assert proof.unreached == ()
    assert list(proof.rule.linear) == [{0}]


@pytest.mark.parametrize("by_frequency", [False, True], ids=["sum", "mean"])
@pytest.mark.parametrize("padding_idx", [-1, 3, 7])
@pytest.mark.parametrize("shape", [(6,), (2, 6)], ids=str)
def test_embedding_dense_backward(shape: tuple[int, ...], padding_idx: int, by_frequency: bool) -> None:
    where = indices(*shape)
    assert (where == padding_idx).any() or padding_idx < 0, "the padding row must be among the indices"
    args = (sample(*shape, 4), where, 8, padding_idx, by_frequency)
    proof = prove("aten.embedding_dense_backward", args, ways=(2, 4))
    names = ",".join(f"n{i}" for i in range(len(shape)))
    kind = "replicate" if by_frequency else "reduce"
    assert str(proof.rule) == f"([{names},e],[{names}])->([v,e]) {kind}={{{names}}}"
    assert proof.unreached == ()
    assert list(proof.rule.linear) == [{0}]
