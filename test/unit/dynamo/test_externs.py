"""Matmuls under ``torch.compile`` go to the library that is faster here."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from shardc.passes.extern.contraction import Contraction

Wrap = Callable[..., Any]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Contraction]:
    """oneDNN is the faster one in the test; what is measured there."""
    found: list[Contraction] = []
    monkeypatch.setattr(
        "shardc.backends.cpu.contractions.measured_form",
        lambda contraction: found.append(contraction) or "onednn",
    )
    return found


def test_forward_and_backward(asked: list[Contraction], programs: list[str]) -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4))
    twin, x = copy.deepcopy(model), torch.randn(5, 6)
    found = torch.compile(model, backend="shardc")(x)
    expected = twin(x)
    found.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
        assert ours.grad is not None and ours.grad.stride() == theirs.grad.stride()  # type: ignore[union-attr]
    assert len(asked) == 5 and not any("mm(" in text for text in programs)
    assert [text.count("= _linear_pointwise(") for text in programs] == [2, 3]


def test_inference_computes_the_activation_inside(asked: list[Contraction], programs: list[str]) -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4))
    x = torch.randn(2, 5, 6)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="shardc")(x), model(x))
    assert "'gelu'" in programs[0] and "gelu(" not in programs[0].replace("'gelu'", "")


def test_inputs_that_overlap_stay_with_aten(asked: list[Contraction]) -> None:
    x, y = torch.randn(30).as_strided((4, 8), (2, 1)), torch.randn(30).as_strided((8, 6), (1, 2))
    torch.testing.assert_close(torch.compile(torch.mm, backend="shardc")(x, y), torch.mm(x, y))
    assert not asked


@pytest.mark.parametrize("options", [{"externs": "aten"}, {"fuse": False}])
def test_atens_matmuls_on_request(asked: list[Contraction], options: dict[str, Any]) -> None:
    x = torch.randn(4, 4)
    assert torch.equal(torch.compile(torch.mm, backend="shardc", options=options)(x, x), torch.mm(x, x))
    assert not asked


def test_measured_in_the_middle_of_compiling(programs: list[str]) -> None:
    """Under autocast, and with fake tensors about: neither gets into the measurement."""
    x, w = torch.randn(128, 256), torch.randn(256, 128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = torch.compile(torch.mm, backend="shardc")(x, w), torch.mm(x, w)
    torch.testing.assert_close(found, wanted, rtol=0, atol=2**-7 * wanted.abs().max().item())
    torch.testing.assert_close(torch.compile(torch.mm, backend="shardc")(x, w), torch.mm(x, w))
    assert len(programs) == 2


def test_beside_users_operators(asked: list[Contraction]) -> None:
    """What one makes may lie in memory in any way: ATen takes it."""

    @torch.library.custom_op("shardc_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    x = torch.randn(4, 4)
    for f, count in ((lambda x: twice(torch.mm(x, x)), 1), (lambda x: torch.mm(x, twice(x)), 0)):
        torch.testing.assert_close(torch.compile(f, backend="shardc")(x), f(x))
        assert len(asked) == count
        asked.clear()


def test_a_program_is_of_the_number_of_threads_that_it_was_measured_with(asked: list[Contraction]) -> None:
    x, threads = torch.randn(4, 4), torch.get_num_threads()
    try:
        for count, expected in ((threads, 1), (threads, 1), (threads + 1, 2)):
            torch.set_num_threads(count)
            torch._dynamo.reset()
            torch.compile(torch.mm, backend="shardc")(x, x)
            assert len(asked) == expected
    finally:
        torch.set_num_threads(threads)


def test_any_number_of_rows(asked: list[Contraction], programs: list[str]) -> None:
    """Measured with a power of two of them; weight gradients, which sum over the rows, stay with ATen."""
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4))
    twin, run = copy.deepcopy(model), torch.compile(model, backend="shardc", dynamic=True)
    for batch, length in ((2, 5), (3, 7), (9, 4)):
        x = torch.randn(batch, length, 6)
        found, expected = run(x), twin(x)
        torch.testing.assert_close(found, expected)
        ours, theirs = (
            torch.autograd.grad(y.square().sum(), m.parameters())
            for y, m in ((found, model), (expected, twin))
        )
        torch.testing.assert_close(ours, theirs)
    assert [text.count("= _linear_pointwise(") for text in programs] == [2, 1]
    assert [(c.m, c.k, c.n) for c in asked] == [(16, 16, 4), (16, 6, 16), (16, 4, 16)]


def test_what_follows_any_number_of_rows_is_computed_inside(
    asked: list[Contraction], programs: list[str]
) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inward, self.outward = nn.Linear(6, 16), nn.Linear(16, 6)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self.outward(nn.functional.gelu(self.inward(x))) + x, self.inward(y.mT)

    block = Block()
    run = torch.compile(block, backend="shardc", dynamic=True)
    with torch.no_grad():
        for batch, length in ((2, 5), (3, 7)):
            given = torch.randn(batch, length, 6), torch.randn(6, length * 2)
            torch.testing.assert_close(run(*given), block(*given))
    assert len(programs) == 1 and "'gelu'" in programs[0] and "'add'" in programs[0]
    assert len(asked) == 3 and [c.left_by_row for c in asked].count(False) == 1
