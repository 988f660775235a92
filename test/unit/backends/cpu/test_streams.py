"""Results that are written past the caches: where they are, and that they are the same numbers."""

import pytest
import torch
from bodies import Body, compiled
from programs import NEGATIVE_INFINITY, gelu_chain, layer_norm_backward, rms_norm, softmax
from test_schedule import CHOOSE, loops_of

CONFIG = "streamed_bytes = 1 : i64, far_bytes = 1 : i64, work_per_thread = 1000 : i64"
WHOLE_LINES = [(1, 16), (7, 48), (127, 272), (129, 1024), (3, 4112)]
OTHERS = [(7, 7), (127, 127), (129, 129), (2, 1000)]


def streams(body: Body) -> int:
    body.config = CONFIG
    return loops_of(body).count("nontemporal")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", WHOLE_LINES + OTHERS, ids=str)
def test_rows(shape, threads):
    x, w = torch.randn(shape), torch.randn(shape[1])
    for body, inputs, exact in (
        (softmax(*shape), (x,), x.double().softmax(-1)),
        (rms_norm(*shape), (x, w), torch.nn.functional.rms_norm(x.double(), w.shape, w.double(), 1e-6)),
    ):
        assert streams(body) == (shape in WHOLE_LINES)
        got, *_ = compiled(body)(*inputs)
        torch.testing.assert_close(got.double(), exact, rtol=2e-6, atol=2e-6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("count", [64, 4096, 100_032, 1, 63, 4095])
@pytest.mark.parametrize(
    "element, dtype", [("f32", torch.float32), ("bf16", torch.bfloat16), ("f64", torch.float64)]
)
def test_one_axis_cut_over_threads(element, dtype, count, threads):
    body = Body(f"negated_{element}")
    body.results = [body.map([body.argument((count,), element)], f"%r = arith.negf %0 : {element}")]
    assert streams(body) == (count % 64 == 0)
    x = torch.randn(count).to(dtype)
    assert torch.equal(compiled(body)(x)[0], -x)


def test_parts_that_are_written_out(threads):
    body = Body("parts")
    x, y = body.argument((33, 272)), body.argument((33, 272))
    body.results = [body.map([(x, "d0, d2"), (y, "d0, d2")], CHOOSE, shape=(33, 2, 272))]
    assert streams(body) == 2
    a, b = torch.randn(33, 272), torch.randn(33, 272)
    assert torch.equal(compiled(body)(a, b)[0], torch.stack([a, b], 1))


def test_a_result_beside_sums_over_the_rows(threads):
    """Only the gradient of the input, of three results, is as large as it must be."""
    shape = (65, 272)
    body = layer_norm_backward(*shape)
    plain = layer_norm_backward(*shape)
    inputs = [torch.randn(a.shape) for a in body.arguments]
    assert streams(body) == 1
    for got, wanted in zip(compiled(body)(*inputs), compiled(plain)(*inputs), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 16), (33, 272)], ids=str)
def test_a_result_beside_a_sum_of_its_row(shape, threads):
    """A loop that adds up in a register does not run in pieces."""
    body = Body("doubled")
    x = body.argument(shape)
    doubled = body.map([x], "%r = arith.addf %0, %0 : f32")
    largest = body.reduce([doubled], "%r = arith.maximumf %0, %acc : f32", [1], NEGATIVE_INFINITY)
    body.results = [doubled, largest]
    assert streams(body) == 0
    given = torch.randn(shape)
    made = compiled(body)(given)
    assert torch.equal(made[0], 2 * given) and torch.equal(made[1], (2 * given).amax(1))


def test_what_is_read_again_is_not_streamed():
    body = Body("again")
    x = body.argument((32, 64))
    e = body.map([x], "%r = math.exp %0 : f32")
    s = body.reduce([e], "%r = arith.addf %0, %acc : f32", [1], "0.0")
    body.results = [e, body.map([e, (s, "d0")], "%r = arith.divf %0, %1 : f32")]
    assert streams(body) == 1


def test_small_results_are_not_streamed():
    assert "nontemporal" not in loops_of(gelu_chain(512, 1024))
    assert "nontemporal" in loops_of(gelu_chain(8192, 1024))
