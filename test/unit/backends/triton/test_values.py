"""Functions as Triton kernels, in the interpreter: against eager in f64, at sizes that cross every mask."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import lowered_functions as lowered
import more_functions as more
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from shardc.backends.torch.emit_graph import emit_graph
from shardc.backends.triton.interpreter.interpret import Interpreter
from shardc.diagnostics.triton import InterpreterFailed

from .programs import emitted, fused

aten = torch.ops.aten
Check = Callable[..., None]

ROWS = [(1, 1), (7, 127), (40, 129), (3, 20000)]
"""One element; a row in one tile with a mask; many rows a program; a row that is looped over."""


def _all(check: Check, functions: dict[str, Callable[..., Any]], *tensors: Tensor) -> None:
    """Every function, so that a failure names it."""
    failed = {}
    for name, function in functions.items():
        try:
            check(function, *tensors)
        except AssertionError as error:
            failed[name] = str(error)
    assert not failed


@pytest.mark.slow
def test_pointwise_of_one_tensor(check: Check) -> None:
    _all(check, {n: f for n, f in lowered.UNARY.items() if n not in ("half", "bfloat16")}, lowered.X)


def test_pointwise_of_positive_numbers(check: Check) -> None:
    _all(check, lowered.POSITIVE, lowered.X.abs() + 0.1)


@pytest.mark.slow
def test_pointwise_of_two_tensors(check: Check) -> None:
    _all(check, lowered.BINARY, lowered.X, lowered.Y)


@pytest.mark.slow
def test_reductions(check: Check) -> None:
    _all(check, lowered.ROWS, lowered.X, lowered.Y)


@pytest.mark.slow
def test_activations_and_losses(check: Check) -> None:
    _all(check, more.ACTIVATIONS | more.LOSSES, more.X, more.Y)


def test_products_by_a_vector(check: Check) -> None:
    _all(check, more.PRODUCTS, more.X, more.Y)


@pytest.mark.slow
def test_data_movement(check: Check) -> None:
    _all(check, more.MOVES | more.POOLS, more.PIXELS)


@pytest.mark.parametrize("name", more.JOINED)
def test_parts_of_what_is_made(check: Check, name: str) -> None:
    check(more.JOINED[name], more.PLANE)


@pytest.mark.slow
def test_narrow_integers(check: Check) -> None:
    for dtype in (torch.int8, torch.uint8, torch.int16):
        _all(check, more.NARROW, *(t.to(torch.int64).to(dtype) for t in (more.X * 14, more.Y * 9)))
    _all(check, more.QUANTISED, more.X, more.Y)


@pytest.mark.slow
def test_reductions_to_places_and_of_many_elements(check: Check) -> None:
    _all(check, more.REDUCTIONS, more.X, more.Y)
    check(F.mse_loss, torch.randn(300, 1000), torch.randn(300, 1000))


@pytest.mark.slow
def test_integers(check: Check) -> None:
    made_of_floats = ("true div", "float", "exp", "mixed")
    functions = {n: f for n, f in lowered.INTEGERS.items() if n not in made_of_floats}
    _all(check, functions, torch.arange(-12, 12).reshape(4, 6), torch.arange(24).reshape(4, 6) + 1)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_softmax_and_its_gradient(check: Check, shape: tuple[int, int]) -> None:
    check(
        lambda x, g: (y := torch.softmax(x, -1), aten._softmax_backward_data(g, y, -1, x.dtype)),
        torch.randn(shape),
        torch.randn(shape),
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_layer_norm_and_its_gradients(check: Check, shape: tuple[int, int]) -> None:
    """The gradients of weight and bias are sums over rows beside sums of a row."""
    x, g, w, b = torch.randn(shape), torch.randn(shape), torch.randn(shape[1]), torch.randn(shape[1])
    mean, scale = x.mean(1, keepdim=True), x.var(1, keepdim=True, correction=0).add(1e-5).rsqrt()
    size = [shape[1]]
    check(lambda x, w, b: aten.native_layer_norm(x, size, w, b, 1e-5), x, w, b)
    check(
        lambda *t: aten.native_layer_norm_backward(t[0], t[1], size, *t[2:], [True] * 3),
        g,
        x,
        mean,
        scale,
        w,
        b,
    )


@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_sums_over_rows_and_everything(check: Check, shape: tuple[int, int]) -> None:
    check(lambda x: (x.sum(0), x.amax(0), x.sum(), x.mean(1)), torch.randn(shape))


def test_sums_over_dims_apart_and_between(check: Check) -> None:
    check(lambda x: (x.sum((0, 2)), x.mean(1)), torch.randn(40, 5, 300))
    check(lambda x: torch.softmax(x, 1) * 2, torch.randn(3, 37, 12))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_dtypes(check: Check, dtype: torch.dtype) -> None:
    check(
        lambda x, y: (torch.softmax(x * y + 0.3, -1), x.sum(0)),
        torch.randn(33, 65).to(dtype),
        torch.randn(33, 65).to(dtype),
    )


def test_nan_and_infinity(check: Check) -> None:
    x = torch.randn(37, 40)
    x[3, 4], x[5, 5], x[6] = nan, inf, -inf
    check(
        lambda x: (
            torch.softmax(x, -1),
            x.amax(1),
            x.amin(0),
            x.amax(),
            torch.maximum(x, x.flip(0)),
            F.relu(x),
        ),
        x,
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [1, 127, 129])
def test_loss_and_reads_at_computed_indices(check: Check, size: int) -> None:
    target = torch.arange(129) % size
    target[5:9] = -100
    check(lambda x, t: F.cross_entropy(x, t), torch.randn(129, size), target)
    check(
        lambda w, i, g: F.layer_norm(aten.embedding(w, i) * 2, (size,), g, g),
        torch.randn(13, size),
        torch.randint(13, (3, 43)),
        torch.randn(size),
    )


@pytest.mark.slow
def test_what_fails_in_the_interpreter_is_told(interpreter: Interpreter) -> None:
    """With its traceback; the next program runs."""
    for program, message in (
        ("def graph(rank, inputs):\n    return [1 / 0]", "division by zero"),
        ("import os; os._exit(3)", "its process ended"),
    ):
        with Interpreter() as own, pytest.raises(InterpreterFailed, match=message):
            own.run(program, [], [])
    assert interpreter.run("def graph(rank, inputs):\n    return [inputs[0] + 1]", [], [1]) == [2]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shape", [(129, 127), (8, 16)], ids=str)
def test_transposed_reads_and_parts(check: Check, shape: tuple[int, int]) -> None:
    check(lambda x, y: (x + y.T, torch.cat([x, -x], -1) * 2), torch.randn(shape), torch.randn(shape[::-1]))


def test_gelu_in_bf16_is_right_to_the_last_bit_or_so(interpreter: Interpreter) -> None:
    """Its erfc is a power of a polynomial: good to bf16 over its whole range, the tail among it, where eager
    has no bit left.
    """
    x = torch.linspace(-12, 12, 4001).bfloat16()
    (kernel,) = emitted(module := fused(F.gelu, x))
    (found,) = interpreter.run(emit_graph(module, [0]), [kernel], [x])
    exact = gelu(x.double())
    assert ((found.double() - exact).abs() <= 2.0**-8 * exact.abs() + 1e-9).all()
    special = torch.tensor([nan, inf, 0.0, 1e38, -1e38]).bfloat16()
    (found,) = interpreter.run(emit_graph(module := fused(F.gelu, special), [0]), emitted(module), [special])
    assert found[0].isnan()
    assert torch.equal(found[1:], gelu(special[1:].double()).bfloat16())


def gelu(x: torch.Tensor) -> torch.Tensor:
    """Also of infinity, for which PyTorch's is NaN with AVX-512."""
    return 0.5 * x * torch.special.erfc(-x * 0.5**0.5)


@pytest.mark.parametrize(
    ("dtype", "exponential"), [(torch.bfloat16, "tl.exp("), (torch.float32, "libdevice")]
)
def test_what_was_read_in_16_bits_takes_a_fast_exponential(dtype: torch.dtype, exponential: str) -> None:
    (kernel,) = emitted(fused(lambda x: x.softmax(-1), torch.empty(8, 64, dtype=dtype)))
    assert exponential in kernel.text and ("libdevice" in kernel.text) == (dtype == torch.float32)
