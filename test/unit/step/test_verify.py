"""``verify=True``: a compile that proves itself, in f64 and in its own precision."""

from __future__ import annotations

import re

import pytest
import torch
from torch_mlir import ir

import shardc
from shardc.backends.cpu import compile as kernels
from shardc.backends.eager.proof import compare
from shardc.backends.eager.proof.tolerance import Tolerance
from shardc.diagnostics.api import NotEqual
from shardc.diagnostics.dynamo import ShardcFallbackWarning
from shardc.step.compile_step import CompiledStep

IMPOSSIBLE = Tolerance(-1.0)


def verified(dtype: torch.dtype = torch.float32, fuse: bool = True) -> CompiledStep:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to(dtype)
    return shardc.compile_step(
        model,
        torch.optim.AdamW(model.parameters()),
        {"input": torch.randn(4, 8, dtype=dtype)},
        mesh={"data": 2, "tensor": 2},
        plan="zero3*tensor",
        loss=lambda out, _: out.square().mean(),
        fuse=fuse,
        verify=True,
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_right_program_is_returned(dtype: torch.dtype) -> None:
    proof = verified(dtype).check(steps=2)
    assert proof.passed
    assert max(row.error for row in proof.exact.rows) < 1e-12
    assert {row.role for row in proof.own.rows} == {"loss", "grad", "param", "opt_state"}


@pytest.mark.parametrize(("bound", "where"), [("in_f64", "in float64"), ("own_precision", "own precision")])
def test_each_precision_can_refuse(monkeypatch: pytest.MonkeyPatch, bound: str, where: str) -> None:
    """With a bound that nothing meets in one of them, the compile fails and the table says in which."""
    monkeypatch.setattr(compare, bound, lambda *_: IMPOSSIBLE)
    monkeypatch.setattr(compare, "for_rounding", lambda tolerance, error: tolerance)
    with pytest.raises(NotEqual) as caught:
        verified()
    exact, own = str(caught.value).split("in the program's own precision")
    failing, passing = (exact, own) if bound == "in_f64" else (own, exact)
    assert "NOT equal" in failing and "NOT equal" not in passing.replace("is not equal", "")
    assert where in str(caught.value)


def test_the_report_counts_kernels() -> None:
    assert re.search(r"kernels: \d+ calls of \d+ compiled kernels in place of \d+ ops", str(verified().plan))
    plain = verified(fuse=False)
    assert plain.compiled.program is plain.compiled.rank_module and "kernels" not in str(plain.plan)


def test_kernels_that_do_not_compile_are_left_to_aten(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: ir.Module) -> None:
        raise RuntimeError("no room for kernels")

    monkeypatch.setattr(kernels, "build_library", refuse)
    monkeypatch.setattr(kernels, "failing", lambda module: {})
    with pytest.warns(ShardcFallbackWarning, match="all groups of the program.*no room for kernels"):
        step = verified()
    assert step.compiled.kernel_module is None
