"""Rules of reads and writes by index."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import shardc.runtime.operators.flat_index  # noqa: F401, defines the operator
from shardc.diagnostics.dialects.rules import NoRuleToProve
from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

X, Y = sample(4, 6), sample(4, 6, 8)
PLACES = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(i))[:4] for i in range(4)])
ORDER = torch.tensor([3, 0, 5, 1])


def at(*shape: int, below: int = 4) -> torch.Tensor:
    return sample(*shape, dtype=torch.int64, below=below)


# id: (operator, arguments, rule, operands of its linear set)
CASES = {
    "gather": ("gather", (Y, -1, at(4, 6, 2)), "([n0,n1,s2],[n0,n1,i2])->([n0,n1,i2]) reduce={s2}", {0}),
    "gather from a corner": (
        "gather",
        (Y, 1, at(4, 2, 4)),
        "([n0,s1,s2],[n0,i1,i2])->([n0,i1,i2]) reduce={s1} replicate={s2,i2}",
        {0},
    ),
    "gather targets": (
        "gather",
        (X.clamp(min=0).log(), 1, at(4, 1, below=6)),
        "([n0,s1],[n0,i1])->([n0,i1]) reduce={s1}",
        {0},
    ),
    "gather most": ("gather", (X, 1, PLACES), "([n0,s1],[n0,i1])->([n0,i1]) replicate={s1}", {0}),
    "gather integers": (
        "gather",
        (at(4, 6), 1, at(4, 2)),
        "([n0,s1],[n0,i1])->([n0,i1]) reduce={s1}",
        None,
    ),
    "gather booleans": (
        "gather",
        (X > 0, 1, at(4, 2)),
        "([n0,s1],[n0,i1])->([n0,i1]) replicate={s1}",
        None,
    ),
    "gather a scalar": ("gather", (sample(), 0, torch.tensor(0)), "([],[])->([])", {0}),
    "scatter": (
        "scatter.src",
        (X, -1, PLACES, sample(4, 4)),
        "([n0,s1],[n0,i1],[n0,u1])->([n0,s1]) replicate={s1,i1,u1}",
        {0, 2},
    ),
    "scatter into a corner": (
        "scatter.src",
        (X, -1, PLACES[:2], sample(4, 4)),
        "([s0,s1],[i0,i1],[u0,u1])->([s0,s1]) replicate={s0,i0,u0,s1,i1,u1}",
        {0, 2},
    ),
    "scatter zeros": (
        "scatter.value",
        (X, 1, PLACES, 0),
        "([n0,s1],[n0,i1])->([n0,s1]) replicate={s1,i1}",
        {0},
    ),
    "scatter twos": (
        "scatter.value",
        (X, 1, PLACES, 2),
        "([n0,s1],[n0,i1])->([n0,s1]) replicate={s1,i1}",
        None,
    ),
    "scatter a target": (
        "scatter.value",
        (X, 1, at(4, 1, below=6), -1.0),
        "([n0,s1],[n0,i1])->([n0,s1]) replicate={i1}",
        None,
    ),
    "scatter a target of a few rows": (
        "scatter.value",
        (Y, -1, at(2, 6, 1, below=8), 1),
        "([s0,n1,s2],[i0,n1,i2])->([s0,n1,s2]) replicate={s0,i0,i2}",
        None,
    ),
    "scatter an integer target": (
        "scatter.value",
        (at(4, 6), 1, at(4, 1, below=6), 9),
        "([n0,s1],[n0,i1])->([n0,s1]) replicate={i1}",
        None,
    ),
    "scatter a zero": (
        "scatter.value",
        (X, 1, at(4, 1, below=6), 0),
        "([n0,s1],[n0,i1])->([n0,s1]) replicate={i1}",
        {0},
    ),
    "scatter the gradient of a maximum": (
        "scatter.src",
        (X, 1, at(4, 1, below=6), sample(4, 1)),
        "([n0,s1],[n0,i1],[n0,u1])->([n0,s1]) replicate={i1,u1}",
        {0, 2},
    ),
    "scatter products": (
        "scatter.reduce",
        (X, 1, PLACES, sample(4, 4), "multiply"),
        "([n0,s1],[n0,i1],[n0,u1])->([n0,s1]) replicate={s1,i1,u1}",
        None,
    ),
    "scatter sums of a value": (
        "scatter.value_reduce",
        (X, 1, PLACES, 3, "add"),
        "([n0,s1],[n0,i1])->([n0,s1]) replicate={s1,i1}",
        None,
    ),
    "scatter maxima": (
        "scatter_reduce.two",
        (X, 1, at(4, 4, below=6), sample(4, 4), "amax"),
        "([n0,s1],[n0,i1],[n0,i1])->([n0,s1]) reduce_max={i1} replicate={s1}",
        None,
    ),
    "scatter minima": (
        "scatter_reduce.two",
        (X, 1, at(4, 4, below=6), sample(4, 4), "amin"),
        "([n0,s1],[n0,i1],[n0,i1])->([n0,s1]) reduce_min={i1} replicate={s1}",
        None,
    ),
    "scatter sums": (
        "scatter_reduce.two",
        (X, 1, at(4, 8, below=6), sample(4, 8), "sum"),
        "([n0,s1],[n0,i1],[n0,i1])->([n0,s1]) reduce={i1} replicate={s1}",
        {0, 2},
    ),
    "scatter maxima over what was there": (
        "scatter_reduce.two",
        (X, 1, at(4, 4, below=6), sample(4, 4), "amax", False),
        "([n0,s1],[n0,i1],[n0,u1])->([n0,s1]) replicate={s1,i1,u1}",
        None,
    ),
    "scatter means": (
        "scatter_reduce.two",
        (X, 1, at(4, 4, below=6), sample(4, 4), "mean"),
        "([n0,s1],[n0,i1],[n0,u1])->([n0,s1]) replicate={s1,i1,u1}",
        {0, 2},
    ),
    "scatter_add": (
        "scatter_add",
        (X, 1, at(4, 8, below=6), sample(4, 8)),
        "([n0,s1],[n0,i1],[n0,i1])->([n0,s1]) reduce={i1} replicate={s1}",
        {0, 2},
    ),
    "scatter_add of a part": (
        "scatter_add",
        (X, 1, at(4, 4, below=6), sample(4, 8)),
        "([n0,s1],[n0,i1],[n0,u1])->([n0,s1]) replicate={s1,i1,u1}",
        {0, 2},
    ),
    "scatter_add of integers": (
        "scatter_add",
        (at(4, 6), 1, at(4, 8, below=6), at(4, 8)),
        "([n0,s1],[n0,i1],[n0,i1])->([n0,s1]) reduce={i1} replicate={s1}",
        None,
    ),
    "index_select": ("index_select", (Y, 1, ORDER), "([n0,s,n2],[i])->([n0,i,n2]) replicate={s}", {0}),
    "index_add": (
        "index_add",
        (Y, -2, at(10, below=6), sample(4, 10, 8), 0.5),
        "([n0,s,n2],[i],[n0,i,n2])->([n0,s,n2]) reduce={i} replicate={s}",
        {0, 2},
    ),
    "index_copy": (
        "index_copy",
        (Y, 1, ORDER, sample(4, 4, 8)),
        "([n0,s,n2],[i],[n0,i,n2])->([n0,s,n2]) replicate={s,i}",
        {0, 2},
    ),
    "index_fill with zeros": (
        "index_fill.int_Scalar",
        (Y, 1, ORDER, 0),
        "([n0,s,n2],[i])->([n0,s,n2]) replicate={s,i}",
        {0},
    ),
    "index_fill with ones": (
        "index_fill.int_Scalar",
        (Y, 1, ORDER, 1),
        "([n0,s,n2],[i])->([n0,s,n2]) replicate={s,i}",
        None,
    ),
    "index_put once": (
        "index_put",
        (Y, (None, ORDER), sample(4, 4, 8)),
        "([n0,s1,n2],[x0],[n0,x0,n2])->([n0,s1,n2]) replicate={s1,x0}",
        {0, 2},
    ),
    "index_put a row everywhere": (
        "_unsafe_index_put",
        (Y, (None, ORDER), sample(8)),
        "([n0,s1,n2],[x0],[n2])->([n0,s1,n2]) replicate={s1,x0}",
        {0, 2},
    ),
    "index_put integers": (
        "index_put",
        (at(4, 6), (at(8),), at(8, 6), True),
        "([s0,n1],[x0],[x0,n1])->([s0,n1]) reduce={x0} replicate={s0}",
        None,
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "args", "einsum", "linear"), CASES.values(), ids=CASES)
def test_indexing(name: str, args: tuple[Any, ...], einsum: str, linear: set[int] | None) -> None:
    proof = prove(f"aten.{name}", args, ways=(2, 4))
    assert str(proof.rule) == einsum
    assert [f for f in proof.unreached if proof.rule.sizes[f] > 1] == []
    assert list(proof.rule.linear) == ([] if linear is None else [linear])


# id: indices into Y [4, 6, 8]; dims of self, indices and result; its indexed dims; factors of size 1
ADVANCED = {
    "rows": ((at(2, 4),), "s0,n1,n2", "[x0,x1]", "x0,x1,n1,n2", "s0", ()),
    "columns": ((None, at(4, below=6)), "n0,s1,n2", "[x0]", "n0,x0,n2", "s1", ()),
    "an outer product": ((at(4, 1), at(1, 6)), "s0,s1,n2", "[x0,1],[1,x1]", "x0,x1,n2", "s0,s1", ()),
    "apart": ((at(4), None, at(4)), "s0,n1,s2", "[x0],[x0]", "x0,n1", "s0,s2", ()),
    "of two ranks": ((None, at(2, 2), at(2)), "n0,s1,s2", "[x0,x1],[x1]", "n0,x0,x1", "s1,s2", ()),
    "a scalar and apart": ((torch.tensor(1), None, at(2)), "s0,n1,s2", "[],[x0]", "x0,n1", "s0,s2", ()),
    "rows of transformers' masks": (
        (at(2, 1, 1, 1), at(1, 1, 1, 4)),
        "s0,s1,n2",
        "[x0,x1,x2,1],[1,x1,x2,x3]",
        "x0,x1,x2,x3,n2",
        "s0,s1",
        ("x1", "x2"),
    ),
}
BY_INDEX = pytest.mark.parametrize("case", ADVANCED)


@BY_INDEX
@pytest.mark.parametrize("name", ["index", "_unsafe_index"])
def test_advanced_index(name: str, case: str) -> None:
    indices, own, index, picked, indexed, unreached = ADVANCED[case]
    proof = prove(f"aten.{name}.Tensor", (Y, indices))
    assert str(proof.rule) == f"([{own}],{index})->([{picked}]) replicate={{{indexed}}}"
    assert proof.unreached == unreached
    assert list(proof.rule.linear) == [{0}]


def test_indices_that_stand_apart_put_their_dims_in_front() -> None:
    proof = prove("aten.index.Tensor", (sample(2, 4, 6, 4), (None, at(8), None, at(8))))
    assert str(proof.rule) == "([n0,s1,n2,s3],[x0],[x0])->([x0,n0,n2]) replicate={s1,s3}"
    assert proof.unreached == ()


@pytest.mark.sampled(1)
@BY_INDEX
@pytest.mark.parametrize("values", ["all", "broadcast", "one"])
def test_index_put_that_accumulates(case: str, values: str) -> None:
    indices, own, index, picked, indexed, unreached = ADVANCED[case]
    shape = tuple(torch.ops.aten.index.Tensor(Y, indices).shape)
    shape = {"all": shape, "broadcast": shape[1:], "one": (1,) * len(shape)}[values]
    proof = prove("aten.index_put", (Y, indices, sample(*shape, seed=4), True))
    reduced = ",".join(f for f in proof.rule.sizes if f.startswith("x"))
    if values == "all":
        rest = f"([{own}],{index},[{picked}])->([{own}]) reduce={{{reduced}}} replicate={{{indexed}}}"
        assert str(proof.rule) == rest
    assert proof.rule.reduce == dict.fromkeys(reduced.split(","), "sum")
    assert proof.unreached == unreached
    assert list(proof.rule.linear) == [{0, index.count("[") + 1}]


DECLINED = {
    "a mask as index": ("index.Tensor", (Y, (sample(4, dtype=torch.bool),))),
    "a mask to put": ("index_put", (Y, (sample(4, 6, dtype=torch.bool),), torch.tensor(0.0).double())),
    "a scalar to select": ("index_select", (Y, 1, torch.tensor(2))),
    "a scalar to add": ("index_add", (sample(), 0, torch.tensor(0), sample())),
    "a scalar to copy": ("index_copy", (sample(), 0, torch.tensor(0), sample())),
    "a scalar gathered by a row": ("gather", (sample(), 0, torch.tensor([0]))),
    "a scalar scattered by a row": ("scatter.src", (sample(1), 0, torch.tensor(0), sample(1))),
    "a scalar summed": ("scatter_add", (sample(), 0, torch.tensor(0), sample())),
}


@pytest.mark.parametrize(("name", "args"), DECLINED.values(), ids=DECLINED)
def test_no_rule(name: str, args: tuple[Any, ...]) -> None:
    """Masks pick as many elements as their values say; scalars are not worth a rule."""
    with pytest.raises(NoRuleToProve, match=f"aten.{name} has no sharding rule"):
        prove(f"aten.{name}", args)


def test_flat_index() -> None:
    rows, columns = torch.tensor([[0], [-3], [2], [1]]), torch.tensor([[3, -1, 0, 2]])
    proof = prove("shardc.flat_index", ([rows, columns], [3, 5], 0), ways=(2, 4))
    assert str(proof.rule) == "([a,1],[1,b])->([a,b])" and proof.unreached == ()
