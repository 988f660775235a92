"""PyTorch's libraries of attention, as ``shardc::attention`` and its backward call them, against plain ops in
f64.
"""

from __future__ import annotations

import math
from typing import Any

import prepared  # defines the ops
import pytest
import torch
from torch import Tensor

from shardc.runtime.operators.attention import CUDNN, EFFICIENT, FLASH, LIBRARIES, Problem, library_for

assert prepared
BF16, F32 = torch.bfloat16, torch.float32
BOUNDS = {BF16: 2.0**-5, F32: 1e-4}
FORMS: dict[str, dict[str, Any]] = {
    "causal": {"causal": True},
    "grouped": {"kv_heads": 2, "causal": True},
    "long": {"keys": 333},
    "f32": {"dtype": F32},
    "f32, grouped": {"dtype": F32, "kv_heads": 1},
    "bool mask": {"mask": torch.bool},
    "mask": {"mask": BF16, "keys": 333, "kv_heads": 2},
    "mask of f32": {"mask": F32, "dtype": F32},
}


def _made(form: dict[str, Any], device: torch.device) -> tuple[Problem, Tensor]:
    """Heads beside sizes in memory; the first row of a mask sees nothing."""
    generator = torch.Generator().manual_seed(3)
    dtype, keys, heads = form.get("dtype", BF16), form.get("keys", 257), form.get("kv_heads", 4)
    shapes = ((2, 257, 4, 64), (2, keys, heads, 64), (2, keys, heads, 64), (2, 257, 4, 64))
    q, k, v, grad = (torch.randn(s, generator=generator).to(device, dtype).transpose(1, 2) for s in shapes)
    mask = None
    if "mask" in form:
        shown = torch.rand(2, 1, 257, keys, generator=generator) < 0.7
        shown[:, :, 0] = False
        additive = torch.zeros(shown.shape).masked_fill(~shown, -math.inf)
        mask = (shown if form["mask"] == torch.bool else additive.to(dtype)).to(device)
    return Problem(q, k, v, mask, form.get("causal", False), 0.125), grad


def _run(problem: Problem, grad: Tensor, first: str, second: str) -> tuple[Tensor, ...]:
    """Forward by one overload, backward by another: each reads what any of them gives."""
    settings = (problem.causal, problem.scale, 0)
    out, lse = getattr(torch.ops.shardc.attention, first)(*problem[:4], *settings)
    return (
        out,
        lse,
        *getattr(torch.ops.shardc.attention_backward, second)(grad, *problem[:4], out, lse, *settings),
    )


@pytest.mark.parametrize(
    ("first", "second"), [(FLASH, FLASH), (CUDNN, CUDNN), (EFFICIENT, EFFICIENT), (CUDNN, EFFICIENT)]
)
@pytest.mark.parametrize("form", FORMS)
def test_libraries_agree(form: str, first: str, second: str, gpu: torch.device) -> None:
    problem, grad = _made(FORMS[form], gpu)
    if any(
        library_for(problem._replace(library=name)) != name for name in (first, second) if name in LIBRARIES
    ):
        pytest.skip(f"{first} and {second} do not both take this form")
    mask = problem.mask
    exact = problem._replace(
        q=problem.q.double(),
        k=problem.k.double(),
        v=problem.v.double(),
        mask=mask.double() if mask is not None and mask.is_floating_point() else mask,
    )
    wanted = _run(exact, grad.double(), "default", "default")
    found = _run(problem, grad, *(name if name in LIBRARIES else "default" for name in (first, second)))
    bound = BOUNDS[problem.q.dtype]
    for name, got, want in zip(("out", "lse", "dq", "dk", "dv"), found, wanted, strict=True):
        assert torch.equal(got.isinf(), want.isinf()) and not got.isnan().any(), name
        got, want = got.double().nan_to_num(neginf=0), want.double().nan_to_num(neginf=0)
        scale = max(1.0, want.abs().max().item())
        torch.testing.assert_close(
            got, want, rtol=bound, atol=bound * scale, msg=lambda text, n=name: f"{n}: {text}"
        )
