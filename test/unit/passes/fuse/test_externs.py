"""``kern-extern`` by execution: every form of a contraction that oneDNN supports, against f64 and eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch.nn import functional
from torch_mlir import ir

from shardc.backends.eager.interpreter import run
from shardc.backends.eager.proof.tolerance import difference, magnitude, own_precision
from shardc.dialects.kern.strides import note_strides
from shardc.passes.extern.contraction import Contraction, onednn_takes
from shardc.passes.extern.kern_extern import extern_module

from .conftest import traced

Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def externs(module: ir.Module) -> list[str]:
    ops = [o.operation for o in module.body.operations[0].operation.regions[0].blocks[0].operations]
    return [ir.StringAttr(op.attributes["target"]).value for op in ops if op.name == "kern.extern"]


def with_onednn(f: Callable[..., Tensor], *tensors: Tensor, form: str = "onednn") -> tuple[Tensor, list[str]]:
    """What ``f`` gives with its contractions computed by oneDNN, and the operators called; in f64 it is the
    same.
    """
    module = traced(f, tensors)
    [[before]] = run(module, [[t] for t in tensors], widen=True)
    function = module.body.operations[0].operation
    note_strides(function, [None if t.is_contiguous() else tuple(t.stride()) for t in tensors])
    extern_module(module, lambda contraction: form)
    module.operation.verify()
    [[after]] = run(module, [[t] for t in tensors], widen=True)
    torch.testing.assert_close(after, before, rtol=0, atol=1e-12 * max(before.abs().max().item(), 1))
    [[made]] = run(module, [[t] for t in tensors])
    return made, externs(module)


def assert_as_eager(found: Tensor, eager: Tensor, exact: Tensor) -> None:
    """Laid out as eager's, and within the oracle's bound for the dtype of the exact result."""
    assert found.dtype == eager.dtype and found.shape == eager.shape and found.stride() == eager.stride()
    assert difference(found, exact) <= own_precision(found.dtype).relative * magnitude(exact)


ONEDNN_DTYPES = [
    torch.float32,
    pytest.param(
        torch.bfloat16,
        marks=pytest.mark.skipif(
            not onednn_takes(torch.bfloat16), reason="oneDNN multiplies no bf16 on this CPU: it needs AVX-512"
        ),
    ),
]
EPILOGUES: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "gelu": functional.gelu,
    "tanh-gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ONEDNN_DTYPES, ids=str)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_a_linear_layer(dtype: torch.dtype, epilogue: str) -> None:
    after = EPILOGUES[epilogue]

    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return after(torch.addmm(b, x, w.t()).view(1, x.shape[0], -1))

    for m, k, n in ((1, 7, 127), (127, 129, 7), (7, 1, 129), (129, 127, 1)):
        x, w, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype), torch.randn(n).to(dtype)
        found, (target,) = with_onednn(f, x, w, b)
        assert target == "mkldnn._linear_pointwise"
        assert_as_eager(found, f(x, w, b), f(x.double(), w.double(), b.double()))


LAYOUTS: dict[str, Callable[[int, int], Tensor]] = {
    "rows": torch.randn,
    "columns": lambda m, n: torch.randn(n, m).t(),
    "part of rows": lambda m, n: torch.randn(m, n + 5)[:, 2 : n + 2],
    "part of columns": lambda m, n: torch.randn(n, m + 3).t()[1 : m + 1],
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
def test_layouts(left: str, right: str) -> None:
    for m, k, n in ((7, 129, 33), (1, 8, 5), (8, 1, 5), (8, 5, 1)):
        x, y = LAYOUTS[left](m, k), LAYOUTS[right](k, n)
        found, targets = with_onednn(torch.mm, x, y)
        assert targets == ["mkldnn._linear_pointwise"]
        assert_as_eager(found, torch.mm(x, y), x.double() @ y.double())


@pytest.mark.parametrize("layout", ["every other column", "one row for all", "overlapping"])
def test_other_layouts_are_atens(layout: str) -> None:
    odd = {
        "every other column": torch.randn(8, 12)[:, ::2],
        "one row for all": torch.randn(1, 6).expand(8, 6),
        "overlapping": torch.randn(30).as_strided((8, 6), (2, 1)),
    }[layout]
    for arguments in ((torch.randn(5, 8), odd), (odd, torch.randn(6, 5))):
        assert with_onednn(torch.mm, *arguments)[1] == []


@pytest.mark.parametrize("dtype", ONEDNN_DTYPES, ids=str)
def test_residuals(dtype: torch.dtype) -> None:
    def f(x: Tensor, w: Tensor, residual: Tensor) -> Tensor:
        return residual + (x @ w.t()).view(residual.shape)

    x, w, residual = (
        torch.randn(14, 9).to(dtype),
        torch.randn(33, 9).to(dtype),
        torch.randn(2, 7, 33).to(dtype),
    )
    for other in (residual, residual.transpose(0, 1).contiguous().transpose(0, 1)):
        found, (target,) = with_onednn(f, x, w, other)
        assert target == "mkldnn._linear_pointwise.binary"
        exact = f(x.double(), w.double(), other.double())
        assert_as_eager(found.contiguous(), f(x, w, other).contiguous(), exact)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: torch.mm(x, y) + torch.ones(4),
        lambda x, y: torch.add(torch.mm(x, y), torch.ones(6, 4), alpha=2),
        lambda x, y: (lambda z: z + z)(torch.mm(x, y)),
        lambda x, y: torch.mm(x, y) + torch.ones(6, 4, dtype=torch.float64),
        lambda x, y: torch.relu(torch.mm(x, y)),
    ],
    ids=["broadcast", "alpha", "itself", "another dtype", "relu"],
)
def test_epilogues_that_stay_apart(f: Callable[[Tensor, Tensor], Tensor]) -> None:
    x, y = torch.randn(6, 8), torch.randn(8, 4)
    found, targets = with_onednn(f, x, y)
    assert targets == ["mkldnn._linear_pointwise"]
    torch.testing.assert_close(found, f(x, y))


def test_the_sum_of_two_products() -> None:
    """It is the epilogue of one of them."""
    f = lambda x, y: torch.mm(x, y) + torch.mm(y, x)  # noqa: E731
    found, targets = with_onednn(f, x := torch.randn(6, 6), y := torch.randn(6, 6))
    assert targets == ["mkldnn._linear_pointwise", "mkldnn._linear_pointwise.binary"]
    torch.testing.assert_close(found, f(x, y))


def test_the_epilogue_is_atens_where_that_is_faster() -> None:
    f = lambda x, y: functional.gelu(torch.mm(x, y))  # noqa: E731
    found, targets = with_onednn(f, x := torch.randn(6, 8), y := torch.randn(8, 4), form="onednn, apart")
    assert targets == ["mkldnn._linear_pointwise"]
    torch.testing.assert_close(found, f(x, y))


@pytest.mark.parametrize("epilogue", [name for name in EPILOGUES if name != "gelu"])
def test_not_a_number_and_infinity_as_in_eager(epilogue: str) -> None:
    special = [float("nan"), float("inf"), -float("inf"), -0.0, 1e-40, 89.0, -89.0, 3e38, -3e38]
    x, y = torch.tensor(special)[:, None], torch.ones(1, 3)
    f = lambda x, y: EPILOGUES[epilogue](torch.mm(x, y))  # noqa: E731
    found, _ = with_onednn_only(f, x, y)
    torch.testing.assert_close(found, f(x, y), equal_nan=True)


def test_gelu_of_infinity() -> None:
    """Eager's vectorized gelu gives NaN for infinity, its scalar one infinity; a kernel's and oneDNN's is
    infinity.
    """
    x, y = torch.tensor([[float("nan")], [float("inf")], [-40.0]]), torch.ones(1, 1)
    found, _ = with_onednn_only(lambda x, y: functional.gelu(torch.mm(x, y)), x, y)
    torch.testing.assert_close(
        found.flatten(), torch.tensor([float("nan"), float("inf"), 0.0]), equal_nan=True
    )


def with_onednn_only(f: Callable[..., Tensor], *tensors: Tensor) -> tuple[Tensor, list[str]]:
    module = traced(f, tensors)
    extern_module(module, lambda contraction: "onednn")
    [[made]] = run(module, [[t] for t in tensors])
    assert externs(module)
    return made, externs(module)


def test_what_is_asked_for() -> None:
    """A forward, an input's gradient and a weight's, with sizes and layouts."""
    asked: list[Contraction] = []

    def f(x: Tensor, w: Tensor, dy: Tensor) -> Sequence[Tensor]:
        return torch.tanh(x @ w.t()), dy @ w, dy.t() @ x

    extern_module(
        traced(f, (torch.randn(5, 8), torch.randn(4, 8), torch.randn(5, 4))),
        lambda c: asked.append(c) or "aten",
    )
    assert [str(c) for c in reversed(asked)] == [
        "5x8 by row, 8x4 by column, torch.float32, aten.tanh",
        "5x4 by row, 4x8 by row, torch.float32",
        "4x5 by column, 5x8 by row, torch.float32",
    ]


def test_large_ones_are_shrunk() -> None:
    small = Contraction(512, 512, 32000, torch.float32, True, False).shrunk(1 << 28)
    assert (small.m, small.k, small.n) == (512, 512, 500)
