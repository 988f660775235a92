"""Elementary functions and their gradients, for arguments of every magnitude, against f64 and eager."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

LAST_PLACES = 4
"""Units in the last place by which a result may differ from the true one."""

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh")
    },
    **{
        name: getattr(torch, name)
        for name in ("digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "i0")
    },
    **{
        name: getattr(torch, name)
        for name in ("lgamma", "log", "log10", "log1p", "log2", "logit", "reciprocal")
    },
    **{
        name: getattr(torch, name)
        for name in ("rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt", "tan", "tanh")
    },
    **{name: getattr(F, name) for name in ("celu", "elu", "gelu", "hardsigmoid", "hardswish", "logsigmoid")},
    **{name: getattr(F, name) for name in ("mish", "selu", "silu", "softplus", "softsign", "tanhshrink")},
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "pow2.5": lambda x: x**2.5,
    "pow-1.5": lambda x: x**-1.5,
    "pow1/3": lambda x: x ** (1 / 3),
}

MOST = 1e30
DIFFERENCES = ("gelu", "gelu_tanh", "tanhshrink")
"""Functions that are differences of numbers of x's size, whose rounding errors are of that size."""

WIDEST = 64
"""A multiple of the elements that eager computes at a time. Others have an exponent of another type."""


def arguments(dtype: torch.dtype) -> Tensor:
    """Random bits, magnitudes from 1e-20 to 1e4, evenly drawn ones, ones near 1 and -1, and the edges."""
    count, generator, limits = 1 << 12, torch.Generator().manual_seed(0), torch.finfo(dtype)

    def drawn() -> Tensor:
        return torch.rand(count, generator=generator, dtype=torch.float64)

    size = {torch.float32: torch.int32, torch.float64: torch.int64}[dtype]
    bits = torch.randint(
        torch.iinfo(size).min, torch.iinfo(size).max, (count,), generator=generator, dtype=size
    )
    magnitudes = 10 ** (24 * drawn() - 20) * (drawn() - 0.5).sign()
    ones = torch.where(drawn() < 0.5, 1.0, -1.0) + 10 ** (-15 * drawn()) * (drawn() - 0.5).sign()
    edges = [
        0.0,
        0.5,
        1.0,
        2.0,
        limits.tiny,
        limits.tiny / 8,
        limits.max,
        torch.inf,
        88.7,
        104.0,
        709.0,
        745.0,
    ]
    edge = torch.tensor([*edges, torch.nan, *(-x for x in edges)], dtype=torch.float64)
    edge = edge.repeat(WIDEST)[: -len(edge) % WIDEST + len(edge)]
    return torch.cat(
        [bits.view(dtype), *(part.to(dtype) for part in (magnitudes, 60 * drawn() - 30, ones, edge))]
    )


def values(x: Tensor) -> list[Tensor]:
    return [function(x) for function in FUNCTIONS.values()]


def gradients(x: Tensor) -> list[Tensor]:
    inputs = [x.clone().requires_grad_() for _ in FUNCTIONS]
    results = [function(copy) for function, copy in zip(FUNCTIONS.values(), inputs, strict=True)]
    return list(torch.autograd.grad(torch.stack(results).sum(), inputs))


def last_place(x: Tensor) -> Tensor:
    """Return the distance from ``|x|`` to the next larger number."""
    return torch.nextafter(x.abs(), torch.tensor(torch.inf, dtype=x.dtype)) - x.abs()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("asked", [values, gradients], ids=lambda f: f.__name__)
def test_functions_are_as_near_to_the_truth_as_eager(asked, dtype, compiled):
    x = arguments(dtype)
    got, eager = compiled(asked, fuse=True)(x), asked(x)
    truth = asked(x.double())
    wrong = []
    for name, mine, plain, exact in zip(FUNCTIONS, got, eager, truth, strict=True):
        same = (mine == plain) | (mine.isnan() & plain.isnan())
        right = torch.where(plain.isfinite(), plain, exact.to(dtype))  # eager may overflow early
        allowed = LAST_PLACES * last_place(right).double() + 2 * (right.double() - exact).abs()
        if name in DIFFERENCES:
            allowed += 2 * LAST_PLACES * last_place(x.clamp(-MOST, MOST)).double()
        near = ((mine.double() - exact).abs() <= allowed) | (mine.double() == exact)
        near |= (plain == 0) & (mine.abs() < torch.finfo(dtype).tiny)  # eager may flush denormals
        over = ~near & (plain.isfinite() | ~same)
        worst = ", ".join(f"{x[i]:.9g}: {mine[i]:.9g}, not {exact[i]:.9g}" for i in over.nonzero()[:4, 0])
        if over.any():
            wrong.append(f"{name} of {int(over.sum())} arguments: {worst}")
    assert not wrong, "\n".join(wrong)
