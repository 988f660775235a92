"""Loops that are put in vector lanes by hand: the numbers at every length, and which loops are left alone."""

import pytest
import torch
from bodies import Body, compiled
from programs import ADD, NEGATIVE_INFINITY
from torch_mlir import ir

from shardc.backends.cpu.host import has_tables
from shardc.backends.cpu.lanes.vectorize import vectorize

LENGTHS = [1, 7, 15, 16, 17, 63, 64, 65, 127, 129, 255, 257, 512, 1000, 1031]
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("element", TYPES)
def test_each_element_at_every_length(length, element, threads):
    body = Body(f"lanes_{element}")
    x, w = body.argument((5, length), element), body.argument((length,), element)
    code = f"%s = arith.addf %0, %1 : {element}\n%e = math.exp %s : {element}\n%r = math.erf %e : {element}"
    body.results = [body.map([x, (w, "d1")], code)]
    a, b = torch.randn(5, length).to(TYPES[element]), torch.randn(length).to(TYPES[element])
    (got,) = compiled(body)(a, b)
    step = torch.finfo(TYPES[element]).eps
    torch.testing.assert_close(got.double(), (a + b).double().exp().erf(), rtol=4 * step, atol=step)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("config", ["", "far_bytes = 1 : i64, piece = 64 : i64"], ids=["whole", "in_pieces"])
@pytest.mark.parametrize("length", LENGTHS)
def test_sums_at_every_length_and_what_they_start_from(length, config, threads):
    body = Body("sums", config=config)
    x = body.argument((9, length))
    body.results = [
        body.reduce([x], "%e = math.exp %0 : f32\n%r = arith.addf %e, %acc : f32", [1], start)
        for start in ("0.0", "1.0e+06")
    ]
    values = torch.randn(9, length)
    values[3, length // 2], values[4, -1], values[5, 0] = torch.nan, torch.inf, -torch.inf
    exact = values.double().exp().sum(1)
    for got, wanted in zip(compiled(body)(values), (exact, exact + 1e6), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("length", [40, 600])
def test_a_row_of_masked_scores(length):
    """Largest, exponentials, sum and the step's own position, as in a causal softmax."""
    body = Body("masked")
    x = body.argument((length, length))
    code = """%i = linalg.index 0 : index
        %j = linalg.index 1 : index
        %p = arith.index_cast %i : index to i64
        %q = arith.index_cast %j : index to i64
        %c = arith.cmpi sle, %q, %p : i64
        %n = arith.constant 0xFF800000 : f32
        %r = arith.select %c, %0, %n : f32"""
    s = body.map([x], code)
    m = body.reduce([s], "%r = arith.maximumf %0, %acc : f32", [1], NEGATIVE_INFINITY)
    e = body.map([s, (m, "d0")], "%s = arith.subf %0, %1 : f32\n%r = math.exp %s : f32")
    body.results = [body.map([e, (body.reduce([e], ADD, [1], "0.0"), "d0")], "%r = arith.divf %0, %1 : f32")]
    scores = torch.randn(length, length)
    (got,) = compiled(body)(scores)
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    torch.testing.assert_close(
        got.double(), scores.double().masked_fill(hidden, -torch.inf).softmax(1), rtol=1e-6, atol=1e-9
    )


def test_exponentials_of_any_size():
    sizes = torch.logspace(2, 38, 4001).float()
    x = torch.cat([sizes, -sizes, torch.tensor([torch.inf, -torch.inf])])
    body = Body("exponentials")
    given = body.argument(tuple(x.shape))
    body.results = [body.map([given], f"%r = math.{name} %0 : f32") for name in ("exp", "exp2")]
    for got, wanted in zip(compiled(body)(x), (x.exp(), x.exp2()), strict=True):
        assert torch.equal(got.signbit(), wanted.signbit())
        torch.testing.assert_close(got, wanted, rtol=3e-7, atol=0)


def loop(body: str, step: int = 1) -> str:
    return f"""func.func @f(%x: memref<99xf32>, %y: memref<99xf32>, %w: memref<99xf64>) -> f32 {{
        %zero = arith.constant 0 : index
        %one = arith.constant 1 : index
        %two = arith.constant 2 : index
        %step = arith.constant {step} : index
        %high = arith.constant 90 : index
        %start = arith.constant 0.0 : f32
        %sum = scf.for %i = %zero to %high step %step iter_args(%acc = %start) -> f32 {{
            {body}
        }}
        return %sum : f32
    }}"""


PLAIN = """%v = memref.load %x[%i] : memref<99xf32>
    %e = math.exp %v : f32
    memref.store %e, %y[%i] : memref<99xf32>
    %t = arith.addf %e, %acc fastmath<reassoc> : f32
    scf.yield %t : f32"""


def in_lanes(text: str) -> bool:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        vectorize(module)
        assert module.operation.verify()
        return "vector<16xf32>" in str(module)


def test_a_loop_in_lanes():
    assert in_lanes(loop(PLAIN))
    assert in_lanes(loop(PLAIN.replace("%x[%i]", "%y[%i]")))  # in place


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(loop(PLAIN, step=2), id="steps_of_two"),
        pytest.param(loop(PLAIN.replace(" fastmath<reassoc>", "")), id="a_sum_in_order"),
        pytest.param(loop(PLAIN.replace("arith.addf %e", "arith.mulf %e")), id="a_product"),
        pytest.param(loop(PLAIN.replace("math.exp %v", "math.cbrt %v")), id="no_such_function"),
        pytest.param(loop("%p = math.powf %acc, %acc : f32\n" + PLAIN), id="the_sum_is_read"),
        pytest.param(
            loop(PLAIN.replace("math.exp %v : f32", "math.exp %v : f32\n%p = math.cbrt %e : f32")),
            id="atan2",
        ),
        pytest.param(
            loop("%k = arith.addi %i, %one : index\n" + PLAIN.replace("%x[%i]", "%y[%k]")), id="reads_ahead"
        ),
        pytest.param(
            loop("%k = arith.subi %i, %one : index\n" + PLAIN.replace("%x[%i]", "%y[%k]")), id="reads_behind"
        ),
        pytest.param(
            loop("%k = arith.muli %i, %two : index\n" + PLAIN.replace("%x[%i]", "%x[%k]")), id="strided"
        ),
        pytest.param(loop(PLAIN.replace("%y[%i]", "%y[%one]")), id="one_place"),
        pytest.param(
            loop(
                "%d = memref.load %w[%i] : memref<99xf64>\n%f = math.exp %d : f64\n"
                + PLAIN.replace("math.exp %v", "math.absf %v")
            ),
            id="f64",
        ),
    ],
)
def test_what_is_left_alone(text):
    assert not in_lanes(text)


@pytest.mark.skipif(not has_tables(), reason="this CPU has no AVX-512: nothing is put in lanes")
def test_without_the_instructions_the_numbers_are_as_good(monkeypatch):
    monkeypatch.setenv("SHARDC_TARGET", "x86_64 avx avx2 bmi1 bmi2 f16c fma sse sse2 sse4_1 sse4_2 ssse3")
    test_sums_at_every_length_and_what_they_start_from(129, "", 1)
    test_each_element_at_every_length(129, "f32", 1)
