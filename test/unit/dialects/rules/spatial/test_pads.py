"""Rules of pads: which rows ranks trade, of each kind, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from shardc.dialects.rules.proving.execution import call_of, sample
from shardc.dialects.rules.proving.proof import prove
from shardc.dialects.rules.rule import load_rules
from shardc.dialects.rules.spatial.pads import PADS

ROWS = sample(2, 2, 16, 4)
# id: the amounts, the number, the rule
CONSTANTS: dict[str, tuple[tuple[int, ...], float, str]] = {
    "blocks of one more": ((0, 0, 1, 7), 0, "([a,b,(c d),f])->([a,b,(c e),f]) replicate={d,e} trade={c}"),
    "another number": ((0, 0, 1, 7), 3.0, "([a,b,(c d),f])->([a,b,(c e),f]) replicate={d,e} trade={c}"),
    "blocks of one less": ((0, 0, -1, -7), 0, "([a,b,(c d),e])->([a,b,c,e]) replicate={d} trade={c}"),
    "moved": ((0, 0, -3, 3), 2.0, "([a,b,c,d])->([a,b,c,d]) trade={c}"),
    "two dims": ((2, 2, 3, -3), 0, "([a,b,c,d])->([a,b,c,(d e)]) replicate={e} trade={c,d}"),
    "farther than a block": ((0, 0, 5, 19), 1.5, ""),
    "all that is left": ((0, 0, -8, 0), 0, ""),
    "no common divisor": ((0, 0, 0, 1), 0, "([a,b,c,e])->([a,b,d,e]) replicate={c,d}"),
}


@pytest.mark.parametrize("case", CONSTANTS)
def test_constants(case: str) -> None:
    pad, number, rule = CONSTANTS[case]
    proof = prove("aten.constant_pad_nd", (ROWS, pad, number), ways=(2, 4, 8))
    assert not rule or str(proof.rule) == rule
    assert proof.unreached == ()
    assert list(proof.rule.linear) == ([] if number else [{0}])


# id: the amounts along rows and columns
EDGES = {
    "blocks of one more": (0, 0, 1, 7),
    "two dims": (1, 3, 1, 7),
    "one side": (0, 0, 0, 8),
    "cut off": (0, 0, 9, -1),
    "moved": (0, 0, -1, 1),
}


def _pad(kind: str, amounts: tuple[int, ...], image: torch.Tensor) -> None:
    name = f"aten.{kind}_pad{len(amounts) // 2}d"
    proof = prove(name, (image, amounts), ways=(2, 4, 8))
    made = call_of(name, (image, amounts))[2][0]
    back = prove(f"{name}_backward", (sample(*made.shape, seed=3), image, amounts), ways=(2, 4, 8))
    for each in (proof, back):
        assert each.rule.traded
        assert each.unreached == ()
        assert list(each.rule.linear) == [{0}]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize("case", EDGES)
def test_edges(kind: str, case: str) -> None:
    _pad(kind, EDGES[case], ROWS)


@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize("dims", [1, 3])
def test_edges_of_other_ranks(kind: str, dims: int) -> None:
    image: Any = sample(2, 2, 8) if dims == 1 else sample(1, 2, 4, 8, 2)
    _pad(kind, (1, 3) if dims == 1 else (0, 0, 1, 3, 1, 1), image)


@pytest.mark.parametrize("amounts", [(0, 0, 1, 7), (1, 3, 1, 7), (0, 0, 0, 8), (2, 2, 3, 5), (0, 0, 16, 16)])
def test_the_other_end(amounts: tuple[int, ...]) -> None:
    proof = prove("shardc.circular_pad", (ROWS, amounts), ways=(2, 4, 8))
    made = functional.pad(ROWS, amounts, "circular")
    assert torch.equal(torch.ops.shardc.circular_pad(ROWS, amounts), made)
    back = prove("shardc.circular_pad_backward", (sample(*made.shape, seed=3), ROWS, amounts), ways=(2, 4, 8))
    for each in (proof, back):
        assert each.rule.traded and each.unreached == ()
        assert list(each.rule.linear) == [{0}]


def test_the_gradient_of_the_other_end() -> None:
    image = ROWS.double().requires_grad_()
    grad = sample(*functional.pad(ROWS, (1, 3, 2, 5), "circular").shape, seed=3).double()
    (wanted,) = torch.autograd.grad(functional.pad(image, (1, 3, 2, 5), "circular"), image, grad)
    (found,) = torch.autograd.grad(torch.ops.shardc.circular_pad(image, (1, 3, 2, 5)), image, grad)
    torch.testing.assert_close(found, wanted)


def test_every_operator_has_a_case() -> None:
    registered = {t for t, f in load_rules().items() if f.__module__.endswith(".pads")}
    assert registered == set(PADS)
