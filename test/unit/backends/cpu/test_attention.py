"""Attention kernels against f64: out, lse and three gradients, over sizes, layouts, masks and dtypes."""

import math

import pytest
import torch
from attention_kernels import Case, compiled_attention, in_f64
from torch_mlir import ir

from shardc.backends.body.structured import read_structured
from shardc.backends.cpu.attention import shared as attention
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.context import new_context

BOUNDS = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
"""Largest error, relative to the largest element of a result (of all gradients): a few roundings of the
dtype.
"""

HALF, BRAIN = torch.float16, torch.bfloat16


def window(queries: int, keys: int, width: int) -> torch.Tensor:
    """A causal sliding window of ``width`` keys."""
    back = torch.arange(queries)[:, None] - torch.arange(keys)[None]
    return ((back >= 0) & (back < width))[None, None]


def padding(batch: int, keys: int, padded: int) -> torch.Tensor:
    return (torch.arange(keys) < keys - padded).repeat(batch, 1)[:, None, None]


def added(*shape: int) -> torch.Tensor:
    """An additive mask that hides a third of the scores."""
    return torch.randn(shape).masked_fill(torch.rand(shape) < 0.3, -math.inf)


CASES = {
    "one of everything": (Case(1, 1, 1, 1, 1, 1, 1), None),
    "grouped, causal, heads last": (Case(2, 6, 2, 7, 7, 5, 3, causal=True, heads_last=True), None),
    "offset": (Case(1, 2, 2, 127, 129, 32, 33, causal=True, q_offset=2), None),
    "a place given as it runs": (Case(1, 4, 2, 33, 129, 32, 33, causal=True, place=70), None),
    "rows that see nothing": (
        Case(2, 2, 1, 129, 127, 64, 64, causal=True, q_offset=-5),
        added(1, 2, 129, 127),
    ),
    "sliding window": (Case(1, 1, 1, 200, 300, 129, 16), window(200, 300, 40)),
    "half, a mask of two dims": (Case(1, 4, 2, 130, 127, 20, 64, HALF, causal=True), added(130, 127)),
    "bfloat16, padding": (Case(2, 2, 2, 65, 150, 64, 17, BRAIN, heads_last=True), padding(2, 150, 90)),
}


def check(case: Case, mask: torch.Tensor | None) -> None:
    forward, backward = compiled_attention(case, mask)
    given, more = case.tensors(), [*([] if mask is None else [mask]), *[case.place] * (case.place > 0)]
    exact = in_f64(case, given, mask)
    operands = [given[r] for r in "qkv"]
    out, lse = forward(*operands, *more)
    saved = [
        case.ordered(exact["out"]).to(case.dtype).contiguous(),
        case.ordered(exact["lse"]).float().contiguous(),
    ]
    found = {"out": out, "lse": lse} | dict(
        zip(("dq", "dk", "dv"), backward(given["grad_out"], *operands, *saved, *more), strict=True)
    )
    gradients = max(exact[r].abs().max().item() for r in ("dq", "dk", "dv"))
    for role, got in found.items():
        wanted, seen = exact[role], exact[role].isfinite()
        got = case.ordered(got).double()
        assert torch.equal(got.isfinite(), seen) and torch.equal(got[~seen], wanted[~seen]), role
        scale = gradients if role.startswith("d") else wanted[seen].abs().max().item() if seen.any() else 1.0
        bound = BOUNDS[torch.float32 if role == "lse" else case.dtype]
        error = (got - wanted)[seen].abs().max().item() if seen.any() else 0.0
        assert error <= bound * scale, f"{role}: {error / scale:.1e}"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_equals_f64(name):
    torch.manual_seed(0)
    check(*CASES[name])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kv_heads", [1, 3])
def test_threads(threads, kv_heads):
    """Threads take blocks of queries in turn, and heads of keys in backward, or parts of the keys if heads
    are few.
    """
    torch.manual_seed(0)
    check(Case(1, 6, kv_heads, 300, 300, 32, 32, causal=True), None)


@pytest.mark.slow
def test_narrow_vectors(monkeypatch, tmp_path):
    """As on a CPU with 16 vector registers of 8 lanes."""
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(attention, "vector_lanes", lambda: 8)
    monkeypatch.setattr(attention, "vector_registers", lambda: 16)
    torch.manual_seed(0)
    check(Case(1, 2, 1, 45, 70, 20, 40, causal=True, q_offset=10), added(45, 70))


def test_nan_and_infinity_as_eager():
    """A NaN stays in its row; an infinite key makes the rows NaN in which its score is infinite."""
    case = Case(1, 1, 1, 20, 20, 4, 4)
    forward, _ = compiled_attention(case)
    given = case.tensors()
    given["q"][0, 0, 3, 1] = math.nan
    q, k, v = (given[r] for r in "qkv")
    out, lse = forward(q, k, v)
    assert (
        torch.equal(out.isnan().any(-1), q.isnan().any(-1))
        and lse[0, 0, 3].isnan()
        and lse.isnan().sum() == 1
    )
    k[0, 0, 5] = math.inf
    out, _ = forward(q, k, v)
    eager = torch.softmax(q @ k.mT * case.scale, -1) @ v
    assert torch.equal(out.isnan(), eager.isnan())


def test_a_kernel_of_more_than_attention_is_refused():
    """Attention takes what it reads from memory and gives all that it makes."""
    text = """func.func @f(%x: tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32> {
      %out, %lse = "kern.attention"(%x, %x, %x) {causal = false, q_offset = 0 : i64, scale = 1.0 : f64,
        unseen_lse = 0.0 : f64, indexing_maps = [affine_map<(b, h, m, n, d, e) -> (b, h, m, d)>, affine_map<(b, h, m, n, d, e) -> (b, h, n, d)>,
          affine_map<(b, h, m, n, d, e) -> (b, h, n, e)>, affine_map<(b, h, m, n, d, e) -> (b, h, m, e)>,
          affine_map<(b, h, m, n, d, e) -> (b, h, m)>]}
        : (tensor<1x1x4x4xf32>, tensor<1x1x4x4xf32>, tensor<1x1x4x4xf32>) -> (tensor<1x1x4x4xf32>, tensor<1x1x4xf32>)
      return %out : tensor<1x1x4x4xf32>
    }"""  # noqa: E501
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        function = module.body.operations[0].operation
        with pytest.raises(KernelNotSupported, match="attention that shares a kernel"):
            read_structured(function)
