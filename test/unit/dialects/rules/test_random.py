"""Rules of the random ops: any block is the same numbers."""

from __future__ import annotations

import pytest
import torch

import shardc.runtime.operators.sampling  # noqa: F401  (defines the operators)
from shardc.dialects.rules.proving.proof import prove

SEED = torch.tensor(11)
# id: (size, offsets, global_size), the rule
CASES = {
    "scalar": (((), (), ()), "([])->([])"),
    "1d": (((10,), (0,), (10,)), "([])->([n0])"),
    "2d": (((4, 6), (0, 0), (4, 6)), "([])->([n0,n1])"),
    "3d": (((2, 3, 4), (0, 0, 0), (2, 3, 4)), "([])->([n0,n1,n2])"),
    "a block of a larger tensor": (((4, 6), (4, 3), (16, 9)), "([])->([n0,n1])"),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("block", "einsum"), CASES.values(), ids=CASES)
def test_uniform(block: tuple[tuple[int, ...], ...], einsum: str, dtype: torch.dtype) -> None:
    proof = prove("shardc.uniform", (SEED, 3, *block, dtype), ways=(2, 3), tolerance=0.0)
    assert str(proof.rule) == einsum
    assert proof.unreached == ()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("op", ["poisson", "binomial", "standard_gamma"])
@pytest.mark.parametrize("offsets, whole", [((0, 0), (4, 6)), ((4, 3), (16, 9))], ids=["whole", "a block"])
def test_samples(op: str, offsets: tuple[int, ...], whole: tuple[int, ...]) -> None:
    rates = torch.linspace(0.1, 30, 24, dtype=torch.float64).view(4, 6)
    parameters = (rates.ceil(), rates / 31) if op == "binomial" else (rates,)
    proof = prove(f"shardc.{op}", (*parameters, SEED, 3, offsets, whole), ways=(2, 3), tolerance=0.0)
    assert str(proof.rule) == ("([n0,n1],[n0,n1],[])" if op == "binomial" else "([n0,n1],[])") + "->([n0,n1])"
    assert proof.unreached == ()


@pytest.mark.parametrize("op, operands", [("_standard_gamma_grad", 2), ("_dirichlet_grad", 3)])
def test_gradients_of_samples(op: str, operands: int) -> None:
    values = torch.linspace(0.1, 0.9, 24, dtype=torch.float64).view(4, 6)
    proof = prove(f"aten.{op}", [values + i for i in range(operands)], ways=(2, 3))
    assert str(proof.rule) == f"({','.join(['[a,b]'] * operands)})->([a,b])"
    assert proof.unreached == ()
