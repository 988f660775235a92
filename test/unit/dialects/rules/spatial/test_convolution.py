"""Rules of convolutions and their gradients: plain, strided, grouped, depthwise, patches, transposed; pixels
that are cut, with halos of every width.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

IMAGE = sample(4, 6, 8, 8)
WHOLE = " replicate={y0,z0,x0,y1,z1,x1}"
NEAR = " replicate={z0,z1} trade={y0,y1}"
STRIDED = " replicate={z0,s0,z1,s1} trade={y0,y1}"


def conv(
    weight: torch.Tensor,
    *,
    bias: bool = False,
    stride: tuple[int, ...] = (1, 1),
    padding: tuple[int, ...] = (1, 1),
    dilation: tuple[int, ...] = (1, 1),
    transposed: bool = False,
    groups: int = 1,
    image: torch.Tensor = IMAGE,
) -> tuple[Any, ...]:
    """The arguments of one ``aten.convolution``."""
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    extra = tuple(int(transposed and s > 1) for s in stride)
    return (
        image,
        weight,
        sample(channels) if bias else None,
        stride,
        padding,
        dilation,
        transposed,
        extra,
        groups,
    )


CONVOLUTIONS = {
    "3x3": (
        conv(sample(8, 6, 3, 3)),
        "([n,i,y0,y1],[o,i,z0,z1])->([n,o,y0,y1]) reduce={i}" + NEAR,
    ),
    "3x3 with bias": (
        conv(sample(8, 6, 3, 3), bias=True, stride=(2, 2)),
        "([n,i,(y0 s0),(y1 s1)],[o,i,z0,z1],[o])->([n,o,y0,y1]) reduce={i}" + STRIDED,
    ),
    "grouped": (
        conv(sample(8, 3, 3, 3), groups=2),
        "([n,(g i),y0,y1],[(g o),i,z0,z1])->([n,(g o),y0,y1]) reduce={i}" + NEAR,
    ),
    "grouped with bias, dilated": (
        conv(sample(12, 2, 3, 3), bias=True, dilation=(2, 2), groups=3),
        "([n,(g i),x0,x1],[(g o),i,z0,z1],[(g o)])->([n,(g o),y0,y1]) reduce={i}" + WHOLE,
    ),
    "depthwise 1d": (
        conv(
            sample(6, 1, 4),
            bias=True,
            stride=(1,),
            padding=(3,),
            dilation=(1,),
            groups=6,
            image=sample(4, 6, 8),
        ),
        "([n,g,x0],[g,1,z0],[g])->([n,g,y0]) replicate={y0,z0,x0}",
    ),
    "patches": (
        conv(sample(8, 6, 2, 4), bias=True, stride=(2, 4), padding=(0, 0)),
        "([n,i,(y0 z0),(y1 z1)],[o,i,z0,z1],[o])->([n,o,y0,y1]) reduce={i} replicate={z0,z1}",
    ),
    "patches in one dim": (
        conv(sample(8, 6, 3, 2), stride=(1, 2), padding=(1, 0)),
        "([n,i,y0,(y1 z1)],[o,i,z0,z1])->([n,o,y0,y1]) reduce={i} replicate={z0,z1} trade={y0}",
    ),
    "pixels left over": (
        conv(sample(8, 6, 3, 3), stride=(3, 3), padding=(0, 0)),
        "([n,i,x0,x1],[o,i,z0,z1])->([n,o,y0,y1]) reduce={i}" + WHOLE,
    ),
    "1x1": (
        conv(sample(8, 6, 1, 1), padding=(0, 0)),
        "([n,i,y0,y1],[o,i,1,1])->([n,o,y0,y1]) reduce={i}",
    ),
    "transposed": (
        conv(sample(6, 4, 3, 3), stride=(2, 2), transposed=True),
        "([n,i,y0,y1],[i,o,z0,z1])->([n,o,(y0 s0),(y1 s1)]) reduce={i}" + STRIDED,
    ),
    "transposed, grouped, with bias": (
        conv(sample(6, 4, 3, 3), bias=True, transposed=True, groups=3),
        "([n,(g i),y0,y1],[(g i),o,z0,z1],[(g o)])->([n,(g o),y0,y1]) reduce={i}" + NEAR,
    ),
    "3d": (
        conv(
            sample(4, 2, 1, 2, 2),
            stride=(1, 2, 2),
            padding=(0, 0, 0),
            dilation=(1, 1, 1),
            image=sample(2, 2, 2, 4, 4),
        ),
        "([n,i,y0,(y1 z1),(y2 z2)],[o,i,1,z1,z2])->([n,o,y0,y1,y2]) reduce={i} replicate={z1,z2}",
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("args", "einsum"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolution(args: tuple[Any, ...], einsum: str) -> None:
    proof = prove("aten.convolution", args)
    assert str(proof.rule) == einsum
    assert proof.unreached == ()
    linear = [{0}, {1}] if args[2] is None else [{0, 2}, {1, 2}]
    assert list(proof.rule.linear) == linear


# id: factors over which gradients are summed
GRADIENTS = {
    "3x3": "n,o,y0,y1",
    "grouped": "n,o,y0,y1",
    "depthwise 1d": "n",
    "patches": "n,o,y0,y1",
    "1x1": "n,o,y0,y1",
    "transposed": "n,o,y0,y1",
    "transposed, grouped, with bias": "n,o,y0,y1",
    "pixels left over": "n,o",
    "3d": "n,o,y0,y1,y2",
}
MASKS = {"all": (True, True, True), "no input": (False, True, True), "no bias": (True, True, False)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("case", GRADIENTS)
def test_convolution_backward(case: str, mask: tuple[bool, bool, bool]) -> None:
    (image, weight, bias, *settings), _ = CONVOLUTIONS[case]
    made = torch.ops.aten.convolution(image, weight, bias, *settings)
    args = (sample(*made.shape, seed=3), image, weight, [made.shape[1]], *settings, mask)
    proof = prove("aten.convolution_backward", args)
    assert ",".join(f for f in proof.rule.sizes if f in proof.rule.reduce) == GRADIENTS[case]
    assert "i" not in proof.rule.replicate
    assert [bool(dims) for dims in proof.rule.results] == list(mask)
    assert proof.unreached == ()
    assert list(proof.rule.linear) == [{0}]


ROWS = sample(2, 2, 8)
# id: kernel, stride, padding, dilation of windows on 8 pixels, cut into blocks of 4, 2 and 1
HALOS = {
    "wider than a block": (7, 1, 3, 1),
    "farther than all blocks": (15, 1, 7, 1),
    "dilated": (3, 1, 4, 4),
    "even": (4, 2, 1, 1),
    "one side": (3, 2, 1, 1),
    "three pixels apart in two": (6, 2, 2, 1),
    "gaps": (1, 2, 0, 1),
    "a gap behind": (2, 4, 0, 1),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("setting", HALOS.values(), ids=HALOS)
def test_halos(setting: tuple[int, int, int, int], transposed: bool) -> None:
    """Every block's windows, and the gradients that go back to the neighbours."""
    kernel, stride, padding, dilation = setting
    weight = sample(2, 2, kernel)
    settings = ((stride,), (padding,), (dilation,), transposed)
    reach = dilation * (kernel - 1)
    rest = (stride - 1 + 2 * padding - reach,) if transposed else (0,)
    args = (ROWS, weight, sample(2), *settings, rest, 1)
    proof = prove("aten.convolution", args, ways=(2, 4, 8), pairs=False)
    assert "y0" in proof.rule.traded
    assert proof.unreached == ()
    made = torch.ops.aten.convolution(*args)
    given = (sample(*made.shape, seed=3), ROWS, weight, [2], *settings, rest, 1, (True, True, True))
    assert prove("aten.convolution_backward", given, ways=(2, 4, 8), pairs=False).unreached == ()
