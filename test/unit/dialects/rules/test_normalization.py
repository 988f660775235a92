"""Rules of layer norm, group norm, softmax and their gradients."""

from __future__ import annotations

import pytest
import torch

from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

X = sample(4, 6, 8)
IMAGE = sample(4, 8, 2, 3)
EPS = 1e-5
aten = torch.ops.aten

# id: (normalized shape, dims of the input, of the weight, of the statistics, outer factors)
SHAPES = {
    "last dim": ((8,), "n0,n1,d0", "d0", "n0,n1,1", "n0,n1"),
    "two dims": ((6, 8), "n0,d0,d1", "d0,d1", "n0,1,1", "n0"),
    "all dims": ((4, 6, 8), "d0,d1,d2", "d0,d1,d2", "1,1,1", ""),
}
BY_SHAPE = pytest.mark.parametrize(("shape", "x", "w", "s", "outer"), SHAPES.values(), ids=SHAPES)
AFFINE = pytest.mark.parametrize("affine", [True, False], ids=["affine", "plain"])
Maybe = tuple[torch.Tensor | None, torch.Tensor | None]


def weights(affine: bool, *shape: int) -> Maybe:
    return (sample(*shape, seed=1), sample(*shape, seed=2)) if affine else (None, None)


@AFFINE
@BY_SHAPE
def test_layer_norm(shape: tuple[int, ...], x: str, w: str, s: str, outer: str, affine: bool) -> None:
    proof = prove("aten.native_layer_norm", (X, shape, *weights(affine, *shape), EPS))
    operands = f"[{x}],[{w}],[{w}]" if affine else f"[{x}]"
    assert str(proof.rule) == f"({operands})->([{x}],[{s}],[{s}]) replicate={{{w}}}"
    assert proof.unreached == ()
    assert proof.rule.linear == ()


@pytest.mark.parametrize("input_gradient", [True, False], ids=["all", "no input"])
@AFFINE
@BY_SHAPE
def test_layer_norm_backward(
    shape: tuple[int, ...], x: str, w: str, s: str, outer: str, affine: bool, input_gradient: bool
) -> None:
    weight, bias = weights(affine, *shape)
    _, mean, rstd = aten.native_layer_norm(X, shape, weight, bias, EPS)
    mask = (input_gradient, affine, affine)
    args = (sample(4, 6, 8, seed=3), X, shape, mean, rstd, weight, bias, mask)
    proof = prove("aten.native_layer_norm_backward", args)
    operands = f"[{x}],[{x}],[{s}],[{s}]" + (f",[{w}],[{w}]" if affine else "")
    results = ",".join(f"[{dims}]" for dims in (x * input_gradient, w * affine, w * affine))
    reduce = f" reduce={{{outer}}}" if outer else ""
    assert str(proof.rule) == f"({operands})->({results}){reduce} replicate={{{w}}}"
    assert proof.unreached == ()
    assert list(proof.rule.linear) == [{0}]


@AFFINE
@pytest.mark.parametrize("groups", [1, 4, 8])
def test_group_norm(groups: int, affine: bool) -> None:
    proof = prove("aten.native_group_norm", (IMAGE, *weights(affine, 8), 4, 8, 6, groups, EPS))
    operands = "[n,(g c),x0,x1]" + (",[(g c)],[(g c)]" if affine else "")
    assert str(proof.rule) == f"({operands})->([n,(g c),x0,x1],[n,g],[n,g]) replicate={{c,x0,x1}}"
    assert proof.unreached == (("g",) if groups == 1 else ())


@AFFINE
@pytest.mark.parametrize("groups", [1, 4, 8])
def test_group_norm_backward(groups: int, affine: bool) -> None:
    weight, bias = weights(affine, 8)
    _, mean, rstd = aten.native_group_norm(IMAGE, weight, bias, 4, 8, 6, groups, EPS)
    mask = (True, affine, affine)
    args = (sample(4, 8, 2, 3, seed=3), IMAGE, mean, rstd, weight, 4, 8, 6, groups, mask)
    proof = prove("aten.native_group_norm_backward", args)
    image = "[n,(g c),x0,x1]"
    operands = f"{image},{image},[n,g],[n,g]" + (",[(g c)]" if affine else "")
    channels = "[(g c)]" if affine else "[]"
    assert (
        str(proof.rule) == f"({operands})->({image},{channels},{channels}) reduce={{n}} replicate={{c,x0,x1}}"
    )
    assert proof.unreached == (("g",) if groups == 1 else ())
    assert list(proof.rule.linear) == [{0}]


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax(name: str, dim: int) -> None:
    proof = prove(f"aten.{name}", (X, dim, False))
    assert str(proof.rule) == f"([n0,n1,n2])->([n0,n1,n2]) replicate={{n{dim % 3}}}"
    assert proof.unreached == ()
    assert proof.rule.linear == ()


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_softmax_backward(name: str, dim: int) -> None:
    output = getattr(aten, name)(X, dim, False)
    args = (sample(4, 6, 8, seed=3), output, dim, torch.float64)
    proof = prove(f"aten.{name}_backward_data", args)
    assert str(proof.rule) == f"([n0,n1,n2],[n0,n1,n2])->([n0,n1,n2]) replicate={{n{dim % 3}}}"
    assert proof.unreached == ()
    assert list(proof.rule.linear) == [{0}]


def test_softmax_of_a_scalar() -> None:
    assert str(prove("aten._softmax", (sample(), 0, False)).rule) == "([])->([])"
