"""ATen calls as text, and that the text calls what was meant."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.backends.torch.functions import Functions
from shardc.backends.torch.names import Names, identifier
from shardc.dialects.aten.call import DEVICE, INT_VALUE, OpCall
from shardc.dialects.aten.types import TensorType

X = TensorType((2, 3), torch.float32)


def text(target: str, *args: Any, operands: tuple[str, ...] = ("x", "y", "z", "w")) -> str:
    return Functions(Names()).call(OpCall(target, args, (X,)), list(operands))


@pytest.mark.parametrize(
    ("target", "args", "expected"),
    [
        ("aten.mm", (X, X), "mm(x, y)"),
        ("aten.add.Tensor", (X, X, 1), "add(x, y)"),
        (
            "aten.native_layer_norm_backward",
            (X, X, (3,), X, X, None, None, (True, True, True)),
            "native_layer_norm_backward(x.contiguous(), y.contiguous(), [3], z.contiguous(), w.contiguous(), "
            "None, None, [True, True, True])",
        ),
        ("aten.add.Tensor", (X, X, 2), "add(x, y, alpha=2)"),
        ("aten.add.Tensor", (X, X, 1.0), "add(x, y, alpha=1.0)"),
        ("aten.sum.dim_IntList", (X, (0, 1), False, None), "sum_dim_intlist(x, [0, 1])"),
        (
            "aten.sum.dim_IntList",
            (X, (0,), True, torch.float64),
            "sum_dim_intlist(x, [0], True, dtype=torch.float64)",
        ),
        ("aten.sum.dim_IntList", (X, None, True, None), "sum_dim_intlist(x, None, True)"),
        (
            "aten.max_pool2d",
            (X, (2, 2), (), (0, 0), (2, 2), True),
            "max_pool2d(x, [2, 2], dilation=[2, 2], ceil_mode=True)",
        ),
        (
            "aten.full",
            ((2, 3), float("-inf"), torch.float32, None, None, None),
            "full([2, 3], -inf, dtype=torch.float32, device=rank.device)",
        ),
        (
            "aten.arange",
            (3, torch.int64, 0, DEVICE, False),
            "arange(3, dtype=torch.int64, device=rank.device)",
        ),
        (
            "aten._to_copy",
            (X, torch.float16, None, None, None, False, 0),
            "_to_copy(x, dtype=torch.float16, memory_format=torch.contiguous_format)",
        ),
        ("aten._to_copy", (X, None, None, DEVICE, None, False, None), "_to_copy(x, device=rank.device)"),
        ("aten.cat", ((X, X, X), 1), "cat([x, y, z], 1)"),
        ("aten.index.Tensor", (X, (None, X)), "index(x, [None, y])"),
        ("aten.slice.Tensor", (X, 1, 0, INT_VALUE, 1), "slice_tensor(x, 1, 0, y)"),
        ("aten.view", (X, (3, 2)), "reshape(x, [3, 2])"),
        ("aten._unsafe_view", (X, (3, INT_VALUE)), "reshape(x, [3, y])"),
        ("aten.gelu", (X, "tanh"), "gelu(x, approximate='tanh')"),
        ("aten.clamp", (X, None, 1.5), "clamp(x, max=1.5)"),
    ],
)
def test_text(target: str, args: tuple[Any, ...], expected: str) -> None:
    assert text(target, *args) == expected


@pytest.mark.parametrize(
    ("target", "rows", "more", "sizes"),
    [
        ("aten.cumsum", 1024, (1, None), "1024, 64"),
        ("aten.cumprod", None, (0, torch.float32), "x.shape[0], 64"),
        ("aten.cumsum", 8, (1, None), None),
        ("aten.sinh", 1024, (), None),
    ],
)
def test_large_results_of_scans_lie_in_the_pool(
    target: str, rows: int | None, more: tuple[Any, ...], sizes: str | None
) -> None:
    functions, x = Functions(Names(), pooled=True), TensorType((rows, 64), torch.float32)
    called = functions.call(OpCall(target, (x, *more), (x,)), ["x"])
    if sizes is None:
        assert "out=" not in called
        return
    assert f"out=empty(({sizes}), torch.float32)" in called
    bound: dict[str, Any] = {"x": torch.rand(1024, 64), "empty": lambda s, d: torch.empty(s, dtype=d)}
    exec("import torch\n" + "\n".join(functions.head()), bound)
    dim = more[0]
    assert torch.equal(eval(called, bound), getattr(torch, target.partition(".")[2])(bound["x"], dim))


def test_a_scan_of_one_dim_lies_in_the_pool() -> None:
    x = TensorType((100_000,), torch.float32)
    called = Functions(Names(), pooled=True).call(OpCall("aten.cumsum", (x, 0, None), (x,)), ["x"])
    assert "out=empty((100000,), torch.float32)" in called or "out=empty((x.shape[0],)" in called


def test_overloads_have_names_of_their_own() -> None:
    functions = Functions(Names(["relu"]))
    names = [
        functions.name(t)
        for t in ("aten.mul.Tensor", "aten.mul.Scalar", "aten.relu", "aten.sum", "aten.mul.Tensor")
    ]
    assert names == ["mul", "mul_scalar", "aten_relu", "aten_sum", "mul"]
    bound: dict[str, Any] = {}
    exec("import torch\n" + "\n".join(functions.head()), bound)
    assert bound["mul_scalar"] is torch.ops.aten.mul.Scalar
    assert bound["aten_sum"] is torch.ops.aten.sum.default


def test_reshape_takes_memory_that_view_would_refuse() -> None:
    turned = torch.arange(6.0).view(2, 3).t()
    with pytest.raises(RuntimeError):
        torch.ops.aten.view.default(turned, [6])
    assert torch.ops.aten.reshape.default(turned, [6]).tolist() == [0, 3, 1, 4, 2, 5]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("layers.0.weight/exp_avg", "layers_0_weight__exp_avg"),
        ("0", "_0"),
        ("group0.lr", "group0_lr"),
        ("", "_"),
    ],
)
def test_identifier(name: str, expected: str) -> None:
    assert identifier(name) == expected


def test_names_are_unique() -> None:
    names = Names()
    assert [names.exact(n) for n in ("a.b", "a_b", "lambda", "a_b")] == ["a_b", "a_b_2", "lambda_2", "a_b_3"]
    assert [names.numbered(n) for n in ("mm", "mm", "a", "a")] == ["mm_0", "mm_1", "a_0", "a_1"]
