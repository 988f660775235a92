"""Functions expanded to arithmetic, against f64: errors in ulp over the whole range, and the values at the
edges.
"""

import numpy as np
import pytest
import torch
from bodies import Body, compiled

from shardc.backends.cpu.host import scales_by_powers_of_two

# Largest error in ulp of f32 that is asked for, and the range in which arguments are drawn.
FUNCTIONS = {
    "exp": (1.5, (-104.0, 89.0), torch.exp),
    "exp2": (1.5, (-150.0, 128.0), torch.exp2),
    "expm1": (3.0, (-20.0, 89.0), torch.expm1),
    "log": (1.5, (0.0, 1e30), torch.log),
    "log2": (3.0, (0.0, 1e30), torch.log2),
    "log1p": (3.0, (-1.0, 1e30), torch.log1p),
    "erf": (2.0, (-5.0, 5.0), torch.erf),
    "tanh": (2.0, (-10.0, 10.0), torch.tanh),
    "rsqrt": (1.5, (0.0, 1e30), torch.rsqrt),
    "log10": (3.0, (0.0, 1e30), torch.log10),
    "sinh": (3.0, (-88.7, 88.7), torch.sinh),
    "cosh": (3.0, (-88.7, 88.7), torch.cosh),
    "asin": (3.0, (-1.0, 1.0), torch.asin),
    "acos": (3.0, (-1.0, 1.0), torch.acos),
    "atan": (3.0, (-3.5e38, 3.5e38), torch.atan),
    "asinh": (4.0, (-3.5e38, 3.5e38), torch.asinh),
    "acosh": (4.0, (1.0, 3.5e38), torch.acosh),
    "atanh": (4.0, (-1.0, 1.0), torch.atanh),
    "tan": (4.0, (-3.5e38, 3.5e38), torch.tan),
    "sin": (2.0, (-3.5e38, 3.5e38), torch.sin),
    "cos": (2.0, (-3.5e38, 3.5e38), torch.cos),
}
COUNT = 1 << 18


def arguments(low: float, high: float) -> torch.Tensor:
    """Evenly drawn ones, ones of every magnitude, and the edges; all in ``[low, high]`` but the last."""
    generator = torch.Generator().manual_seed(0)
    even = torch.rand(COUNT, generator=generator, dtype=torch.float64) * (
        min(high, 1e3) - max(low, -1e3)
    ) + max(low, -1e3)
    bits = torch.randint(-(2**31), 2**31 - 1, (COUNT,), generator=generator).to(torch.int32)
    every = bits.view(torch.float32)
    every = every[(every >= low) & (every <= high)]
    edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1e-45,
        -1e-45,
        1.1754943508222875e-38,
        3.4028234663852886e38,
        -3.4028234663852886e38,
        float("inf"),
        -float("inf"),
        float("nan"),
        88.72283,
        88.72284,
        -103.97,
        -87.34,
        128.0,
        -149.0,
    ]
    return torch.cat([even.float(), every, torch.tensor(edges)])


def kernel_of(function: str, count: int, element: str = "f32"):
    body = Body(f"{function}_{element}")
    body.results = [body.map([body.argument((count,), element)], f"%r = math.{function} %0 : {element}")]
    return compiled(body)


def ulps(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Distance in units of the last place of f32 at the exact value; subnormals count as the
    least of them.
    """
    spacing = np.spacing(exact.float().abs().numpy()).astype(np.float64)
    return (got.double() - exact).abs() / torch.from_numpy(spacing)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_error_in_ulps_over_the_whole_range(function):
    bound, (low, high), reference = FUNCTIONS[function]
    x = arguments(low, high)
    (got,) = kernel_of(function, x.numel())(x)
    exact = reference(x.double())
    eager = reference(x)
    odd = ~eager.isfinite()
    torch.testing.assert_close(got[odd], eager[odd], rtol=0, atol=0, equal_nan=True)
    errors = ulps(got[~odd], exact[~odd])
    worst = errors.argmax()
    assert errors[worst] <= bound, f"{errors[worst]:.2f} ulp at {x[~odd][worst].item():.9g}"


def test_angles_of_points_over_the_whole_range():
    x, y = arguments(-3.5e38, 3.5e38), arguments(-3.5e38, 3.5e38).flip(0)
    edges = torch.tensor([0.0, 1.0, 1e-45, 3e38, torch.inf, torch.nan])
    edges = torch.cat([edges, -edges])
    x, y = torch.cat([x, edges.repeat(len(edges))]), torch.cat([y, edges.repeat_interleave(len(edges))])
    body = Body("angles")
    operands = [body.argument((x.numel(),), "f32") for _ in range(2)]
    body.results = [body.map(operands, "%r = math.atan2 %0, %1 : f32")]
    (got,), exact = compiled(body)(y, x), torch.atan2(y.double(), x.double())
    known = ~exact.isnan()
    assert torch.equal(got.isnan(), ~known)
    assert torch.equal(got[known].signbit(), exact[known].signbit())
    assert ulps(got[known], exact[known]).max() <= 3


@pytest.mark.parametrize("exponent", [3, 9, 16, 63, 64, 65, -3, -16])
def test_whole_constant_powers(exponent: int):
    x = torch.cat([arguments(-3.5e38, 3.5e38), torch.linspace(-4, 4, 10_000)])
    body = Body("power")
    code = f"%e = arith.constant {exponent}.0 : f32\n%r = math.powf %0, %e : f32"
    body.results = [body.map([body.argument((x.numel(),), "f32")], code)]
    (got,), exact = compiled(body)(x), x.double() ** exponent
    eager = exact.float()
    odd = ~eager.isfinite()
    torch.testing.assert_close(got[odd], eager[odd], rtol=0, atol=0, equal_nan=True)
    assert ulps(got[~odd], exact[~odd]).max() <= 1


@pytest.mark.parametrize("function", ["exp", "exp2", "expm1"])
def test_error_in_ulps_where_no_instruction_scales(function, monkeypatch):
    if not scales_by_powers_of_two():
        pytest.skip("the CPU has no such instruction: the test above shows it")
    monkeypatch.setenv("SHARDC_TARGET", "x86_64 avx avx2 bmi1 bmi2 f16c fma sse sse2 sse4_1 sse4_2 ssse3")
    test_error_in_ulps_over_the_whole_range(function)


@pytest.mark.parametrize("function", ["erf", "tanh"])
def test_what_saturates_is_one_and_never_more(function):
    x = torch.cat([torch.linspace(3, 12, 100001), torch.tensor([1e30, float("inf")])])
    (got,) = kernel_of(function, x.numel())(x)
    assert got.max() == 1 and (got[x >= 9.7] == 1).all()
    (negative,) = kernel_of(function, x.numel())(-x)
    assert torch.equal(negative, -got)


@pytest.mark.parametrize("element, dtype", [("bf16", torch.bfloat16), ("f16", torch.float16)])
@pytest.mark.parametrize("function", ["exp", "erf", "tanh", "log"])
def test_half_precision_is_that_of_f32_rounded(function, element, dtype):
    x = torch.linspace(-8, 8, 4001).to(dtype)
    (got,) = kernel_of(function, x.numel(), element)(x)
    eager = getattr(torch, function)(x.float()).to(dtype)
    step = {torch.bfloat16: 2**-8, torch.float16: 2**-11}[dtype]
    torch.testing.assert_close(got.float(), eager.float(), rtol=2 * step, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("function", ["exp", "erf", "tanh", "log", "sin", "cos"])
def test_f64_is_libm(function):
    x = torch.linspace(-20, 20, 5001, dtype=torch.float64)
    (got,) = kernel_of(function, x.numel(), "f64")(x)
    torch.testing.assert_close(got, getattr(torch, function)(x), rtol=1e-14, atol=1e-15, equal_nan=True)


@pytest.mark.parametrize("function", ["expm1", "log1p"])
def test_f64_keeps_small_numbers(function):
    x = torch.logspace(-300, 0, 5001, dtype=torch.float64)
    x = torch.cat([x, -x[:-1], torch.tensor([0.0, -0.0, torch.inf, torch.nan], dtype=torch.float64)])
    (got,) = kernel_of(function, x.numel(), "f64")(x)
    torch.testing.assert_close(got, getattr(torch, function)(x), rtol=4e-16, atol=0, equal_nan=True)


def test_powers_over_the_whole_range():
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31 - 1, (COUNT,), generator=generator).to(torch.int32)
    exponents = torch.cat(
        [8 * torch.rand(COUNT // 2, generator=generator) - 4, bits[: COUNT // 2].view(torch.float32)]
    )
    odd = torch.tensor([0.0, 1.0, 2.0, 3.0, 0.5, 1e-45, 3e38, 16777215.0, torch.inf, torch.nan])
    odd = torch.cat([odd, -odd])
    x = torch.cat(
        [bits.view(torch.float32), torch.rand(COUNT, generator=generator) + 0.5, odd.repeat(len(odd))]
    )
    y = torch.cat([exponents, 200 * exponents, odd.repeat_interleave(len(odd))])
    body = Body("power")
    operands = [body.argument((x.numel(),), "f32") for _ in range(2)]
    body.results = [body.map(operands, "%r = math.powf %0, %1 : f32")]
    (got,) = compiled(body)(x, y)
    exact = torch.from_numpy(np.float_power(x.double().numpy(), y.double().numpy()))
    edge = ~exact.float().isfinite() | (exact.float() == 0)
    torch.testing.assert_close(got[edge], exact.float()[edge], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got[edge & ~got.isnan()].signbit(), exact[edge & ~got.isnan()].signbit())
    assert ulps(got[~edge], exact[~edge]).max() <= 1


def test_tanh_of_a_small_number_is_the_number():
    x = torch.logspace(-45, -5, 5001)
    (got,) = kernel_of("tanh", x.numel())(x)
    assert torch.equal(got, x)


@pytest.mark.parametrize("function", ["sin", "cos"])
def test_sine_and_cosine_near_their_zeros_and_of_large_arguments(function):
    quarters = torch.arange(1 << 16, dtype=torch.float64) * (torch.pi / 2)
    x = torch.cat([torch.linspace(-1e5, 1e5, 5001), quarters.float()])
    (got,) = kernel_of(function, x.numel())(x)
    assert ulps(got, getattr(torch, function)(x.double())).max() <= 2


def test_remainder_is_exact_for_every_quotient():
    body = Body("remainder")
    x, y = arguments(-3.5e38, 3.5e38), arguments(-3.5e38, 3.5e38).flip(0)
    operands = [body.argument((x.numel(),), "f32") for _ in range(2)]
    body.results = [body.map(operands, "%r = arith.remf %0, %1 : f32")]
    (got,) = compiled(body)(x, y)
    with np.errstate(invalid="ignore"):
        exact = torch.from_numpy(np.fmod(x.double().numpy(), y.double().numpy())).float()
    torch.testing.assert_close(got, exact, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got.signbit() | got.isnan(), exact.signbit() | exact.isnan())


@pytest.mark.parametrize("function", ["sin", "cos"])
def test_sine_and_cosine_where_all_arguments_are_small(function):
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(0, 0x47000001, (COUNT,), generator=generator).to(torch.int32)  # up to 2**15
    quarters = (torch.arange(20861, dtype=torch.float64) * (torch.pi / 2)).float()
    near = torch.cat([torch.nextafter(quarters, torch.tensor(to)) for to in (0.0, torch.inf)])
    x = torch.cat(
        [bits.view(torch.float32), quarters, near[near.abs() <= 2**15], torch.tensor([0.0, 2.0**15])]
    )
    x = torch.cat([x, -x])
    (got,) = kernel_of(function, x.numel())(x)
    assert ulps(got, getattr(torch, function)(x.double())).max() <= 2
    assert torch.equal(got[x == 0].signbit(), getattr(torch, function)(x[x == 0]).signbit())


def test_one_large_argument_does_not_change_the_others():
    x = torch.linspace(-100, 100, 5000)
    x[[7, 2999, 4999]] = torch.tensor([1e30, torch.inf, torch.nan])
    (got,) = kernel_of("sin", x.numel())(x)
    expected = torch.sin(x.double()).float()
    torch.testing.assert_close(got, expected, rtol=3e-7, atol=0, equal_nan=True)
