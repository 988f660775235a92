"""Matmuls of all forms, fused with ops before and after them, against f64."""

import pytest
import torch

from shardc.diagnostics.triton import TilingNotLegal, TooMuchSharedMemory

from .contractions import Body, T, emitted, interpret

pytest.importorskip("triton", reason="Triton is not installed")

TILES = "block_m = 16 : i64, block_n = 32 : i64, block_k = 16 : i64, stages = 2 : i64"
FORMS = {
    "tiles": TILES,
    "persistent": f"{TILES}, persistent = 1 : i64, group = 2 : i64",
    "split": f"{TILES}, split = 2 : i64",
}
NAMES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
ROUNDING = {"f32": 1e-6, "f16": 1e-6, "bf16": 1e-6, "f64": 1e-14}


@pytest.fixture(autouse=True)
def same_numbers():
    """Each test draws the same numbers in every run."""
    torch.manual_seed(0)


def dot(body: Body, x: T, y: T, sizes, at, kinds=(2,)) -> T:
    """The sum of products in f32, or f64."""
    narrow, total = x.element in ("f16", "bf16"), "f64" if x.element == "f64" else "f32"
    widen = (
        f"%a = arith.extf %0 : {x.element} to f32\n%b = arith.extf %1 : {x.element} to f32\n"
        if narrow
        else ""
    )
    left, right = ("%a", "%b") if narrow else ("%0", "%1")
    code = f"{widen}%p = arith.mulf {left}, {right} : {total}\n%r = arith.addf %p, %acc : {total}"
    return body.reduce([(x, at[0]), (y, at[1])], code, list(kinds), "0.0", total, shape=sizes)


def close(got: torch.Tensor, exact: torch.Tensor, terms: int, epsilon: float = 1e-6) -> None:
    torch.testing.assert_close(
        got.double(), exact, rtol=8 * epsilon, atol=epsilon * (4 + terms), equal_nan=True
    )


def product(
    sizes, turned=(False, False), element: str = "f32", config: str = TILES
) -> tuple[Body, list[torch.Tensor]]:
    """x @ y, of which either may lie transposed; the body and the tensors as they lie."""
    m, n, k = sizes
    tensors = [torch.randn(s).to(NAMES[element]) for s in ((m, k), (k, n))]
    tensors = [t.t().contiguous() if turn else t for t, turn in zip(tensors, turned, strict=True)]
    body = Body("product", config=config)
    x, y = (body.argument(t.shape, element) for t in tensors)
    at = ("d2, d0" if turned[0] else "d0, d2", "d1, d2" if turned[1] else "d2, d1")
    body.results = [dot(body, x, y, sizes, at)]
    return body, tensors


def exact(tensors: list[torch.Tensor], turned=(False, False)) -> torch.Tensor:
    x, y = (t.double().t() if turn else t.double() for t, turn in zip(tensors, turned, strict=True))
    return x @ y


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("sizes", [(37, 50, 45), (32, 64, 48)], ids=["ragged", "whole"])
def test_operands_as_they_lie(sizes, turned, form):
    """Whole sizes are read by tensor descriptors (but not for plain multiplications), ragged ones under
    masks.
    """
    body, tensors = product(sizes, turned, config=FORMS[form])
    kernel = emitted(body, tf32=True)
    assert ("make_tensor_descriptor" in kernel.text) == (sizes == (32, 64, 48))
    assert "make_tensor_descriptor" not in emitted(body).text
    assert ("mask=" in kernel.text) == (sizes == (37, 50, 45) or form == "split")
    (got,) = interpret(kernel, tensors, [(sizes[:2], torch.float32)])
    close(got, exact(tensors, turned), sizes[2])


@pytest.mark.parametrize("form", FORMS)
def test_descriptors_read_beyond_the_last_tile(form):
    body, tensors = product((40, 56, 24), element="bf16", config=FORMS[form])
    kernel = emitted(body)
    assert "make_tensor_descriptor" in kernel.text
    (got,) = interpret(kernel, tensors, [((40, 56), torch.float32)])
    close(got, exact(tensors), 24)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("element", ["f16", "bf16", "f64"])
@pytest.mark.parametrize("sizes", [(17, 35, 33), (1, 50, 7), (50, 3, 65)], ids=str)
def test_types(element, sizes):
    body, tensors = product(sizes, element=element)
    (got,) = interpret(
        emitted(body, "sm_80"), tensors, [(sizes[:2], torch.float64 if element == "f64" else torch.float32)]
    )
    close(got, exact(tensors), sizes[2], ROUNDING[element])


def test_more_parts_than_terms():
    """Parts of a split sum that have no terms add nothing."""
    body, tensors = product((17, 20, 40), config=f"{TILES}, split = 8 : i64")
    (got,) = interpret(emitted(body), tensors, [((17, 20), torch.float32)])
    close(got, exact(tensors), 40)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [(19, 33, 17), (16, 32, 32)], ids=["ragged", "whole"])
def test_batches(form, sizes):
    m, n, k = sizes
    x, y = torch.randn(3, m, k), torch.randn(3, k, n)
    body = Body("products", config=FORMS[form])
    a, b = body.argument(x.shape), body.argument(y.shape)
    body.results = [dot(body, a, b, (3, m, n, k), ("d0, d1, d3", "d0, d3, d2"), (3,))]
    (got,) = interpret(emitted(body), [x, y], [((3, m, n), torch.float32)])
    close(got, x.double() @ y.double(), k)


def test_heads_are_two_axes():
    """q k^T of [batch, length, heads, size] tensors: the batch is two axes that are not neighbours."""
    q, k = torch.randn(2, 9, 3, 8), torch.randn(2, 11, 3, 8)
    body = Body("scores", config=TILES)
    a, b = body.argument(q.shape), body.argument(k.shape)
    body.results = [dot(body, a, b, (2, 3, 9, 11, 8), ("d0, d2, d1, d4", "d0, d3, d1, d4"), (4,))]
    (got,) = interpret(emitted(body), [q, k], [((2, 3, 9, 11), torch.float32)])
    close(got, torch.einsum("bshd,bthd->bhst", q.double(), k.double()), 8)


def test_terms_and_rows_along_several_axes():
    """A weight's gradient of [batch, length] rows that do not lie as one: sums over two axes."""
    x, g = torch.randn(2, 5, 7, 12), torch.randn(2, 7, 5, 20)
    body = Body("gradient", config=TILES)
    a, b = body.argument(x.shape), body.argument(g.shape)
    body.results = [dot(body, a, b, (12, 20, 2, 5, 7), ("d2, d3, d4, d0", "d2, d4, d3, d1"), (2, 3, 4))]
    (got,) = interpret(emitted(body), [x, g], [((12, 20), torch.float32)])
    close(got, torch.einsum("bsti,btsj->ij", x.double(), g.double()), 70)


@pytest.mark.parametrize("form", FORMS)
def test_prologues(form):
    """What is before the product is computed in its tile; beyond the last term it adds nothing, though exp(0)
    is 1.
    """
    m, n, k = 21, 37, 19
    x, scale, w, y = torch.randn(m, k), torch.randn(m), torch.randn(k), torch.randn(k, n)
    body = Body("scaled", config=FORMS[form])
    a, s, v, b = (body.argument(t.shape) for t in (x, scale, w, y))
    normal = body.map(
        [a, (s, "d0"), (v, "d1")],
        "%t = arith.mulf %0, %1 : f32\n%u = arith.mulf %t, %2 : f32\n%r = math.exp %u : f32",
    )
    right = body.map([b], "%r = math.exp %0 : f32")
    body.results = [dot(body, normal, right, (m, n, k), ("d0, d2", "d2, d1"))]
    (got,) = interpret(emitted(body), [x, scale, w, y], [((m, n), torch.float32)])
    close(got, (x.double() * scale.double()[:, None] * w.double()).exp() @ y.double().exp(), 20 * k)


def test_a_narrow_factor_that_is_computed():
    """Rounded where the program rounds it, and 0 beyond the last term."""
    m, n, k = 21, 37, 19
    x, scale, y = torch.rand(m, k).bfloat16(), torch.randn(m), torch.randn(k, n).bfloat16()
    body = Body("scaled", config=TILES)
    a, s, b = body.argument((m, k), "bf16"), body.argument((m,)), body.argument((k, n), "bf16")
    code = (
        "%w = arith.extf %0 : bf16 to f32\n%t = arith.mulf %w, %1 : f32\n%e = math.exp %t : f32\n%r = "
        "arith.truncf %e : f32 to bf16"
    )
    scaled = body.map([a, (s, "d0")], code, "bf16")
    body.results = [dot(body, scaled, b, (m, n, k), ("d0, d2", "d2, d1"))]
    (got,) = interpret(emitted(body), [x, scale, y], [((m, n), torch.float32)])
    rounded = (x.double() * scale.double()[:, None]).exp().bfloat16().double()
    close(got, rounded @ y.double(), 20 * k, 1e-4)  # exp may round the other way in a few places


def test_a_tensor_by_itself():
    x = torch.randn(33, 17)
    body = Body("gram", config=TILES)
    a = body.argument(x.shape)
    body.results = [dot(body, a, a, (33, 33, 17), ("d0, d2", "d1, d2"))]
    (got,) = interpret(emitted(body), [x], [((33, 33), torch.float32)])
    close(got, x.double() @ x.double().t(), 17)


@pytest.mark.parametrize("form", FORMS)
def test_epilogues(form):
    """Bias, activation, residual and a truth value for each element, each a result of its own."""
    m, n, k = 21, 37, 19
    body, tensors = product((m, n, k), config=FORMS[form])
    bias, residual = torch.randn(n), torch.randn(m, n).bfloat16()
    b, r = body.argument((n,)), body.argument((m, n), "bf16")
    (total,) = body.results
    zero = "%z = arith.constant 0.0 : f32\n"
    code = f"{zero}%s = arith.addf %0, %1 : f32\n%r = arith.maximumf %s, %z : f32"
    made = body.map([total, (b, "d1")], code)
    kept = body.map([made], f"{zero}%t = arith.cmpf ogt, %0, %z : f32\n%r = arith.extui %t : i1 to i8", "i8")
    added = body.map(
        [made, r],
        "%w = arith.extf %1 : bf16 to f32\n%s = arith.addf %0, %w : f32\n%r = arith.truncf %s : f32 to bf16",
        "bf16",
    )
    body.results = [added, kept]
    got = interpret(
        emitted(body), [*tensors, bias, residual], [((m, n), torch.bfloat16), ((m, n), torch.bool)]
    )
    relu = (exact(tensors) + bias.double()).relu()
    torch.testing.assert_close(got[0].double(), relu + residual.double(), rtol=1e-2, atol=1e-2)
    assert torch.equal(got[1], relu > 0)


def test_a_result_that_is_written_turned():
    m, n, k = 33, 50, 20
    body, tensors = product((m, n, k))
    (total,) = body.results
    body.results = [body.map([(total, "d1, d0")], "%r = arith.negf %0 : f32", shape=(n, m))]
    (got,) = interpret(emitted(body), tensors, [((n, m), torch.float32)])
    close(got, -exact(tensors).t(), k)


def test_functions_around_a_product():
    """What is made for the bias alone, and what is summed up over the result, are functions of their own."""
    m, n, k = 21, 37, 19
    body, tensors = product((m, n, k))
    bias = torch.randn(n)
    b = body.argument((n,))
    (total,) = body.results
    doubled = body.map([b], "%r = arith.addf %0, %0 : f32")
    added = body.map([total, (doubled, "d1")], "%r = arith.addf %0, %1 : f32")
    sums = body.reduce([added], "%r = arith.addf %0, %acc : f32", [1], "0.0")
    body.results = [doubled, added, sums]
    outputs = [((n,), torch.float32), ((m, n), torch.float32), ((m,), torch.float32)]
    got = interpret(emitted(body), [*tensors, bias], outputs)
    whole = exact(tensors) + 2 * bias.double()
    for found, wanted in zip(got, (2 * bias.double(), whole, whole.sum(1)), strict=True):
        close(found, wanted, n * k)


def test_an_operand_off_its_alignment_is_copied():
    body, tensors = product((32, 64, 48))
    kernel = emitted(body, tf32=True)
    store = torch.randn(1 + 32 * 48)
    (got,) = interpret(kernel, [store[1:].view(32, 48), tensors[1]], [((32, 64), torch.float32)])
    close(got, store[1:].view(32, 48).double() @ tensors[1].double(), 48)


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        ("block_m = 48 : i64", TilingNotLegal, "block_m = 48 must be a power of 2"),
        (
            "block_m = 256 : i64, block_n = 256 : i64, warps = 4 : i64, stages = 1 : i64",
            TilingNotLegal,
            "registers",
        ),
        (
            "block_m = 128 : i64, block_n = 128 : i64, block_k = 256 : i64, stages = 5 : i64",
            TooMuchSharedMemory,
            "232448",
        ),
    ],
)
def test_a_tiling_that_the_target_cannot_have(config, error, says):
    body, _ = product((512, 512, 512), element="bf16", config=config)
    with pytest.raises(error, match=says):
        emitted(body)


def test_tf32_is_asked_for():
    body, _ = product((64, 64, 64))
    assert '"ieee"' in emitted(body).text
    assert '"tf32"' in emitted(body, tf32=True).text
