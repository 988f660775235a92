"""Programs with errors that a random search found, each reduced to its cause."""

from __future__ import annotations

import pytest
import torch

from .random_programs.check import problem
from .random_programs.how import How
from .random_programs.program import NAMES, Given, Program


def _given(
    shape: tuple[int, ...], dtype: str = "f32", layout: str = "contiguous", grad: bool = False
) -> Given:
    return Given(shape, dtype, layout, grad)


def _program(given: tuple[Given, ...], *lines: str) -> Program:
    """Its result is the last line's."""
    return Program(0, given, lines, (lines[-1].partition(" = ")[0],), tuple({NAMES[g.dtype] for g in given}))


FOUND = {
    "a part whose size is no size of an input": (
        How(sizes="dynamic"),
        _program((_given((3,)),), "v1 = v0 * 1.25 - 0.5", "v2 = v1[1:]"),
    ),
    "a sum of what is expanded alone": (
        How(),
        _program(
            (_given((1, 2, 1)), _given((1, 1, 1), grad=True)),
            "v2 = (v0 * v0 + 0.1).sqrt()",
            "v3 = ((v1 + v0).clone()).sum((0, 1))",
        ),
    ),
    "a log softmax of a transposed tensor lies as ATen's": (
        How(),
        _program((_given((129, 16)),), "v1 = v0.mT.log_softmax(1)"),
    ),
    "a part of a kernel's result lies as eager's": (
        How(),
        _program(
            (_given((16, 3), layout="transposed"),),
            "v1 = F.normalize(v0, p=1.0, dim=1, eps=0.1)",
            "v2 = v1.unbind(1)[0]",
        ),
    ),
    "a table that is expanded where it is read": (
        How(),
        _program(
            (_given((9, 5)),),
            "v1 = v0.mean()",
            "v2 = v1.unsqueeze(0).expand(3)",
            "v3 = v2.gather(0, torch.arange(3) * 7 % 3)",
            "v4 = v3 ** 2",
        ),
    ),
    "a part that is read in another shape": (
        How(rounding="eager", matmuls="generated"),
        _program(
            (_given((7, 5, 17, 8), grad=True),),
            "v1 = v0.expand(2, *v0.shape)",
            "v2 = torch.cat(tuple(reversed(v1.chunk(3, -3))), -3)",
            "v3 = v2.std((0, 1, 2, 3, 4), correction=0).add(0.1)",
        ),
    ),
    "parts of a sum that a call gives rounded alone": (
        How(rounding="eager", matmuls="generated"),
        _program(
            (_given((17, 1), "bf16"),),
            "v1 = F.linear(v0, v0[:9])",
            "v2 = torch.einsum('bi,bj->bij', v1.flatten(1)[:5, :5], v1.flatten(1)[:5, :6])",
        ),
    ),
    "one element of a dim of symbolic size": (
        How(sizes="dynamic"),
        _program(
            (_given((1, 1, 127)),),
            "v1 = v0.flatten()",
            "v2 = (torch.full_like(v1, 0.1) * v1).narrow(0, 46, 1)",
        ),
    ),
    "a result whose size is known to be one of few": (
        How(sizes="dynamic"),
        _program(
            (_given((17, 16)), _given((1, 16)), _given((1, 16), layout="strided", grad=True)),
            "v3 = (v2.square() + 0.5) ** 2",
            "v4 = v3.scatter_add(-1, (torch.arange(16).reshape((1, 16)) * 7 % 16), v3.tanh())",
        ),
    ),
    "a number that is computed from sizes": (
        How(sizes="dynamic"),
        _program(
            (_given((5, 7), grad=True),), "v1 = v0 / v0.shape[-1] ** 0.5", "v2 = v1 * min(v1.shape[0], 4)"
        ),
    ),
}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    how, program = FOUND[name]
    refusals: list[str] = []
    assert problem(program, how, refusals) == "" and not refusals
    assert torch.get_num_threads() == 1
