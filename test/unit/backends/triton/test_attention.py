"""Attention, forward and backward, against autograd in f64: sizes that cross every mask of the kernels."""

import math

import pytest
import torch

from .contractions import BACKWARD, FORWARD, Case, emitted_attention, interpret

pytest.importorskip("triton", reason="Triton is not installed")

SMALL = {f"{kind}_{rows}": 16 for kind in ("forward", "dq", "dkdv") for rows in ("queries", "keys")}
"""Blocks of which small tensors have several."""
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(autouse=True)
def same_numbers():
    """Each test draws the same numbers in every run."""
    torch.manual_seed(0)


def exact(case: Case, q, k, v, mask=None):
    """out and lse in f64; rows that see nothing give 0 and -inf."""
    q, k, v = (case.ordered(x).double() for x in (q, k, v))
    k, v = (x.repeat_interleave(case.heads // case.kv_heads, 1) for x in (k, v))
    score = q @ k.transpose(-1, -2) * case.scale
    if mask is not None:
        score = score.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else score + mask.double()
    if case.causal:
        m, n = torch.arange(case.queries)[:, None], torch.arange(case.keys)
        score = score.masked_fill(n > m + case.q_offset, -math.inf)
    lse = score.logsumexp(-1)
    return (score - lse.masked_fill(lse == -math.inf, 0)[..., None]).exp() @ v, lse


def check(case: Case, mask=None, config=SMALL, unseen_lse: float = -math.inf, symbolic: str = "") -> None:
    """Both kernels of a case."""
    forward, backward = emitted_attention(case, mask, config, unseen_lse=unseen_lse, symbolic=symbolic)
    numbers = [{"b": case.batch, "m": case.queries, "n": case.keys}[dim] for dim in symbolic]
    tensors, given = case.tensors(), [] if mask is None else [mask]
    q, k, v, grad = (tensors[r] for r in ("q", "k", "v", "grad_out"))
    outputs = [[(case.type(r).shape, case.type(r).dtype) for r in made] for _, made in (FORWARD, BACKWARD)]
    out, lse = interpret(forward, [q, k, v, *given], outputs[0], *numbers)
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    exact_out, exact_lse = exact(case, *leaves, mask)
    exact_out.backward(case.ordered(grad).double())
    near = {"rtol": TOLERANCE[case.dtype], "atol": TOLERANCE[case.dtype]}
    torch.testing.assert_close(case.ordered(out).double(), exact_out, **near)
    torch.testing.assert_close(
        case.ordered(lse).double(), exact_lse.masked_fill(exact_lse == -math.inf, unseen_lse), **near
    )
    gradients = interpret(backward, [grad, q, k, v, out, lse, *given], outputs[1], *numbers)
    for found, leaf in zip(gradients, leaves, strict=True):
        torch.testing.assert_close(found.double(), leaf.grad, rtol=near["rtol"], atol=4 * near["atol"])


@pytest.mark.slow
@pytest.mark.parametrize("heads_last", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_sizes_that_do_not_divide(causal, heads_last):
    check(Case(2, 4, 2, 37, 45, 24, 40, causal=causal, heads_last=heads_last))


@pytest.mark.slow
def test_whole_blocks():
    check(Case(1, 2, 2, 32, 48, 16, 16))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types(dtype):
    check(Case(1, 2, 1, 33, 20, 32, 16, dtype=dtype, causal=True))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("q_offset", [-5, 7, 60])
@pytest.mark.parametrize("shape", [(40, 33), (17, 50)], ids=str)
def test_where_causality_begins(shape, q_offset):
    """Rows that see nothing among them, and rows that see all."""
    check(Case(1, 2, 2, *shape, 16, 16, causal=True, q_offset=q_offset))


def seen(*shape: int) -> torch.Tensor:
    return torch.rand(shape) > 0.5


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "shape", [(1, 1, 33, 40), (2, 1, 1, 40), (2, 4, 33, 40), (33, 40), (2, 1, 33, 1)], ids=str
)
@pytest.mark.parametrize("causal", [False, True])
def test_masks_of_truth_values(shape, causal):
    """Of one row and of all rows; row 3 sees nothing where the mask has rows."""
    mask = seen(*shape)
    if mask.shape[-2] > 1:
        mask[..., 3, :] = False
    check(Case(2, 4, 2, 33, 40, 16, 16, causal=causal), mask)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 1, 33, 40), (1, 4, 1, 40)], ids=str)
def test_masks_that_are_added(shape):
    mask = torch.randn(shape)
    mask[..., ::3] = -math.inf
    check(Case(2, 4, 2, 33, 40, 16, 16), mask)


def test_a_sliding_window():
    """Each row sees itself and the 9 keys before it: most blocks hold nothing that is seen."""
    m, n = torch.arange(70)[:, None], torch.arange(70)
    check(Case(1, 2, 1, 70, 70, 16, 16), ((n <= m) & (n > m - 10))[None, None])


@pytest.mark.slow
def test_padding_on_both_sides():
    n = torch.arange(50)
    mask = torch.stack([(n >= 20) & (n < 37), n < 3])[:, None, None]
    check(Case(2, 2, 2, 35, 50, 16, 16), mask)


def test_unseen_rows_of_aten():
    """ATen's kernel says 0 where a row sees nothing."""
    mask = seen(1, 1, 20, 24)
    mask[..., 5, :] = False
    check(Case(1, 1, 1, 20, 24, 16, 16), mask, unseen_lse=0.0)


def test_blocks_that_are_chosen():
    check(Case(1, 2, 1, 100, 70, 16, 16, causal=True), config={})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sizes", [(1, 20, 35), (3, 40, 16)], ids=str)
def test_sizes_that_are_known_at_the_call(sizes):
    batch, queries, keys = sizes
    check(Case(batch, 4, 2, queries, keys, 16, 16, causal=True, heads_last=True), symbolic="bmn")
