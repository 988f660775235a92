"""Ops that are fused with each other, and ops that are not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from shardc.frontend.graph.aot_graph import import_graph
from shardc.passes.fuse.grouping.capabilities import Capabilities
from shardc.passes.fuse.grouping.legal import NO_COMMON_DIMS
from shardc.passes.fuse.kern_fuse import fuse_module, kernels_of

aten = torch.ops.aten


def test_a_pointwise_chain_is_one_kernel_and_one_loop(fuse: Any) -> None:
    done = fuse(lambda x, y: ((x * y) + 1).tanh() * x, torch.randn(2, 3, 4), torch.randn(2, 3, 4))
    assert (
        done.kernels == [("aten.mul.Tensor", "aten.add.Scalar", "aten.tanh", "aten.mul.Tensor")]
        or len(done.kernels) == 1
    )
    assert "tensor<24xf32>" in str(done.module) and str(done.module).count("linalg.generic") == 1


def test_a_lone_op_stays(fuse: Any) -> None:
    done = fuse(lambda x: (x @ x).softmax(-1) @ x, torch.randn(4, 4))
    assert done.kernels == [] and done.stayed == ["aten.mm", "aten._softmax", "aten.mm"]


@pytest.mark.parametrize(("rows", "kernels"), [(8192, 1), (8191, 0)])
def test_an_op_with_a_large_result_is_a_kernel_where_results_are_pooled(rows: int, kernels: int) -> None:
    with torch.device("meta"):
        x = torch.empty(rows, 1024)
    functions: list[tuple[Callable[[Tensor], Tensor], int]] = [
        (torch.relu, kernels),
        (lambda x: x.cumsum(0), 0),
        (lambda x: x.T @ x, 0),
    ]
    for function, count in functions:
        module = import_graph(make_fx(lambda x: [function(x)])(x), "forward").module  # noqa: B023 (traced here)
        fuse_module(module, capabilities=Capabilities(pooled_results=True))
        assert len(kernels_of(module)) == count


@pytest.mark.parametrize(
    ("pixels", "depthwise", "kernels"), [(512, True, 1), (128, True, 0), (512, False, 0)]
)
def test_depthwise_convolutions_with_large_results_are_kernels(
    pixels: int, depthwise: bool, kernels: int
) -> None:
    with torch.device("meta"):
        x, w, whole = torch.empty(2, 16, pixels, pixels), torch.empty(16, 1, 3, 3), torch.empty(16, 16, 3, 3)
    both = make_fx(
        lambda x, w, v: [functional.conv2d(x, w, groups=16, padding=1), functional.conv2d(x, v, padding=1)]
    )
    module = import_graph(both(x, w, whole), "forward").module
    fuse_module(module, capabilities=Capabilities(pooled_results=True, depthwise=depthwise))
    assert len(kernels_of(module)) == kernels
    assert str(module).count("torch.aten.convolution ") == 2 - kernels


def test_matmuls_part_kernels(fuse: Any) -> None:
    def f(x: Tensor, w: Tensor) -> Tensor:
        return functional.gelu(x @ w + 1) @ w * 2 + x

    done = fuse(f, torch.randn(4, 4), torch.randn(4, 4))
    assert (
        done.kernels == [("aten.add.Scalar", "aten.gelu"), ("aten.mul.Scalar", "aten.add.Tensor")]
        or len(done.kernels) == 2
    )
    assert done.stayed == ["aten.mm", "aten.mm"]


def test_sums_of_one_element_are_no_loops_of_their_own(fuse: Any) -> None:
    """-0 sums up to 0, as in eager."""
    x = torch.full((1, 3, 1), -0.0)
    done = fuse(
        lambda x: (x.sum((0, 2), True) + x.var((0, 2), correction=0, keepdim=True)).expand(2, 3, 4) * 2, x
    )
    assert len(done.kernels) == 1 and "reduction" not in str(done.module)
    assert torch.signbit(fuse(lambda x: (x.sum(2) * 1, x.sum(2) * 2), x).results[0]).logical_not().all()


def test_what_asks_for_a_shape_alone_does_not_close_a_circle(fuse: Any) -> None:
    """The running sum, which stays, waits for the ones; as a call these would wait for the sine."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sin()
        ones = torch.ones_like(y).cumsum(1)
        return y + y, ones * x.cos()

    done = fuse(f, torch.randn(2, 7))
    assert done.stayed == ["aten.cumsum"] and ("aten.ones_like",) in done.kernels


def test_a_value_that_is_needed_on_the_way_does_not_close_a_circle(fuse: Any) -> None:
    """x + 1 feeds the matmul and the sum after it: one kernel for all would need its own result."""

    def f(x: Tensor, w: Tensor) -> Tensor:
        h = (x + 1).tanh()
        return ((h @ w).sigmoid() + h) * x

    done = fuse(f, torch.randn(4, 4), torch.randn(4, 4))
    assert [set(k) for k in done.kernels] == [
        {"aten.add.Tensor", "aten.tanh"},
        {"aten.sigmoid", "aten.add.Tensor", "aten.mul.Tensor"},
    ] or len(done.kernels) == 2
    assert done.stayed == ["aten.mm"]


def test_independent_work_between_two_ops_does_not_part_them(fuse: Any) -> None:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        h = x.tanh()
        return w @ w, h * 2

    assert len(fuse(f, torch.randn(4, 4), torch.randn(4, 4)).kernels) == 1


@pytest.mark.parametrize("shape", [(8, 16), (2, 3, 16), (5, 1), (1, 7)])
def test_a_norm_with_its_residual(fuse: Any, shape: tuple[int, ...]) -> None:
    def f(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        h = x + y
        return h, functional.layer_norm(h, h.shape[-1:], w, b).tanh()

    done = fuse(f, torch.randn(shape), torch.randn(shape), torch.randn(shape[-1]), torch.randn(shape[-1]))
    assert len(done.kernels) == 1 and done.stayed == []


def test_gradients_of_a_norm_are_row_and_column_kernels(fuse: Any) -> None:
    def f(g: Tensor, x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        _out, mean, rstd = aten.native_layer_norm(x, [16], w, b, 1e-5)
        dx, dw, db = aten.native_layer_norm_backward(g * 2, x, [16], mean, rstd, w, b, [True, True, True])
        return dx + x, dw, db

    done = fuse(f, torch.randn(2, 3, 16), torch.randn(2, 3, 16), torch.randn(16), torch.randn(16))
    assert any("aten.native_layer_norm_backward" in k for k in done.kernels)
    assert "aten.native_layer_norm_backward" not in done.stayed


def test_gradients_of_a_linear_bias(fuse: Any) -> None:
    def f(g: Tensor, x: Tensor) -> Tensor:
        return (aten.gelu_backward(g, x) * 2).sum(0)

    done = fuse(f, torch.randn(12, 16), torch.randn(12, 16))
    assert len(done.kernels) == 1 and '"reduction", "parallel"' in str(done.module)


def test_views_are_absorbed(fuse: Any) -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        heads = x.view(2, 6, 4, 8).transpose(1, 2)
        return (heads * 2 + y.permute(2, 0, 1).unsqueeze(0)).exp()

    done = fuse(f, torch.randn(2, 6, 32), torch.randn(6, 8, 4))
    assert len(done.kernels) == 1 and done.stayed == []


def test_slices_and_selections_are_offsets(fuse: Any) -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        q, k = x[:, 1:5], x[:, 3::2]
        return (q * k[:, :1] + 1).exp(), x[:, 0].tanh() * x[:, 3] + 1

    done = fuse(f, torch.randn(4, 6))
    assert done.kernels and "aten.slice.Tensor" not in done.stayed and "aten.select.int" not in done.stayed


def test_a_slice_of_heads(fuse: Any) -> None:
    """Rotary embedding: both halves of each head, behind the views that make heads, and their
    concatenation.
    """

    def f(x: Tensor, angles: Tensor) -> Tensor:
        heads = x.view(2, 6, 3, 8).transpose(1, 2)
        return heads * angles + torch.cat((-heads[..., 4:], heads[..., :4]), -1) * (angles + 1)

    done = fuse(f, torch.randn(12, 24), torch.randn(6, 8))
    assert len(done.kernels) == 1 and done.stayed == []


def test_parts_of_a_product_are_computed_apart(fuse: Any) -> None:
    """The gradient of rotary embedding: all that is read of the product is its halves."""

    def f(g: Tensor, angles: Tensor) -> Tensor:
        turned = g * angles
        left = aten.slice_backward(turned[..., 4:], [2, 3, 6, 8], 3, 0, 4, 1)
        return left + aten.slice_backward(-turned[..., :4], [2, 3, 6, 8], 3, 4, 8, 1) + g

    done = fuse(f, torch.randn(2, 3, 6, 8), torch.randn(6, 8))
    assert len(done.kernels) == 1 and done.stayed == []


def test_a_part_of_what_is_read_whole_too_is_a_slice_of_it(fuse: Any) -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        product = (x * y).tanh()
        return product[:, :2] + 1, product

    done = fuse(f, torch.randn(4, 6), torch.randn(4, 6))
    assert ("aten.mul.Tensor", "aten.tanh") in done.kernels
    assert "aten.slice.Tensor" in done.stayed or len(done.kernels) == 2


def test_parts_behind_reshapes_are_read_from_the_whole(fuse: Any) -> None:
    """Coefficients of a polynomial for each group: the kernel reads their tensor, without a view of each."""

    def f(x: Tensor, a: Tensor) -> Tensor:
        made = a[5, :, None]
        for i in range(4, -1, -1):
            made = made * x + a[i].unsqueeze(1)
        return made

    done = fuse(f, torch.randn(5, 8, 6), torch.randn(6, 8))
    assert len(done.kernels) == 1 and done.stayed == []


def test_parts_behind_reshapes_of_few_dims(fuse: Any) -> None:
    """Parts that are split where the kernel's loops are not, and parts of parts."""

    def f(x: Tensor, a: Tensor) -> Tensor:
        parts = [a[i, 2:8].reshape(2, 3) for i in range(5)]
        return sum((x * part).exp() for part in parts) * a[:4, 3].view(4, 1, 1)

    done = fuse(f, torch.randn(4, 2, 3), torch.randn(6, 8))
    assert len(done.kernels) == 1


STENCILS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {
    "a dim before small ones": (lambda x, y: (x[:, 1:] - x[:, :-1]).exp(), "5x96xf32"),
    "a dim of groups": (lambda x, y: x[1:4] * x[:3] + y[2:5], "324xf32"),
    "the small dim, too": (lambda x, y: (x[:, 1:, :, 1:] - x[:, :-1, :, :-1]).exp(), "5x8x4x2xf32"),
    "behind a selection": (lambda x, y: (x[2, 1:] - x[0, :-1]).exp(), "96xf32"),
    "before a selection": (lambda x, y: (x[:, 1:, 1] - x[:, :-1, 2]).exp(), "5x8x3xf32"),
    "with a number for each of the small dims": (lambda x, y: (x[:, 1:] * y[0, 0, 0]).exp(), "5x32x3xf32"),
    "with steps": (lambda x, y: (x[:, 1::2] - x[:, :8:2]).exp(), "5x4x12xf32"),
    "of what is computed": (lambda x, y: (x * y)[:, 1:] - (x * y)[:, :-1].exp(), "5x96xf32"),
    "and the small dims summed": (lambda x, y: (x[:, 1:] * x[:, :-1]).sum((2, 3)), "5x8x12xf32"),
    "of a slice": (lambda x, y: (x[:, 1:][:, 2:] - x[:, :-3]).exp(), "5x72xf32"),
}


@pytest.mark.parametrize("name", STENCILS)
def test_a_slice_and_the_dims_behind_it_are_one_loop(fuse: Any, name: str) -> None:
    """A kernel's loops over rows of neighbours are long, although a row has few elements."""
    function, shape = STENCILS[name]
    done = fuse(function, torch.randn(5, 9, 4, 3), torch.randn(5, 9, 4, 3))
    assert len(done.kernels) == 1
    assert shape in str(done.module)


def test_sums_one_by_one_with_a_view_between(fuse: Any) -> None:
    """The gradient of ``repeat``: a call that shares no kernel reads another's sum through a view."""

    def f(g: Tensor) -> Tensor:
        return g.sum(0).sum(0).view(2, 2).sum(0)

    fuse(f, torch.randn(1, 3, 4))


def test_groups_are_the_same_each_time(fuse: Any) -> None:
    """Among pairs that save as much, the order of the program decides: no address of an object does."""

    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return ((x * y)[:, :2] + 1, x * y, (x * y)[:, 2:] * x[:, :4], (x + y).t() * 2, x - y)

    tensors = torch.randn(4, 6), torch.randn(4, 6)
    first = fuse(f, *tensors)
    for junk in range(8):
        kept = [object() for _ in range(junk * 7)]
        again = fuse(f, *tensors)
        assert (again.kernels, again.stayed, again.decisions) == (
            first.kernels,
            first.stayed,
            first.decisions,
        ), len(kept)


def test_a_group_that_waits_for_what_it_feeds(fuse: Any) -> None:
    """The sum in the middle reads a part of exp's result, and cannot be in its kernel;
    what reads that sum cannot either.
    """

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        high = x.reshape(3, 24).neg().reshape(3, 4, 2, 3).exp().reshape(3, 4, 6)
        centered = high - high.mean(-1, keepdim=True)
        middle = high[:, 1:2] + high
        last = middle + centered
        return middle.permute(2, 0, 1).abs().permute(1, 2, 0), torch.where(last > middle, last, middle)

    fuse(f, torch.randn(3, 4, 6))


def test_equal_work_on_parts_of_a_tensor_is_one_kernel(fuse: Any) -> None:
    """Parts in one piece, and small parts of a bucket of columns, are tensors of their own:
    no offset tells kernels apart.
    """

    def pieces(x: Tensor) -> list[Tensor]:
        return [x[i].view(3, 4).tanh() * 2 for i in range(4)] + [
            x[i : i + 1].view(3, 4).tanh() * 2 for i in range(2)
        ]

    def bucket(x: Tensor) -> list[Tensor]:
        return [x[:, i : i + 4].reshape(8).tanh() * 2 for i in range(0, 128, 4)]

    for f, x, count in ((pieces, torch.randn(4, 12), 6), (bucket, torch.randn(2, 128), 32)):
        done = fuse(f, x)
        assert len(done.kernels) == count
        names = set(re.findall(r'kern.name = "(\w+)"', str(done.module)))
        assert len(names) == 1, names


def test_a_slice_that_is_seen_as_several_dims(fuse: Any) -> None:
    def f(x: Tensor) -> Tensor:
        return x[:, :, 4:12].reshape(2, 3, 2, 4).transpose(1, 2).exp() * 2

    done = fuse(f, torch.randn(2, 3, 12))
    assert len(done.kernels) == 1


def test_a_reshape_that_does_not_fit_stays(fuse: Any) -> None:
    done = fuse(lambda x: (x * 2).tanh().view(3, 4).exp() + 1, torch.randn(2, 6))
    assert len(done.kernels) == 2 and "aten.view" in done.stayed


def test_a_transposed_reader_of_the_same_value(fuse: Any) -> None:
    done = fuse(lambda x: (x * 2).tanh() + (x * 2).tanh().t() * 3, torch.randn(5, 5))
    assert done.stayed == [] or "aten.t" in done.stayed


def test_two_reductions_over_different_dims_are_two_kernels(fuse: Any) -> None:
    def f(x: Tensor) -> Tensor:
        return (x * (x * 2).sum(1, keepdim=True)).exp() + (x * (x * 3).sum(0, keepdim=True)).exp()

    assert len(fuse(f, torch.randn(6, 8)).kernels) >= 2


def test_column_sums_beside_what_they_sum(fuse: Any) -> None:
    def f(g: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        dx = aten.gelu_backward(g, x)
        return dx, dx.sum(0), dx.softmax(1)

    done = fuse(f, torch.randn(12, 16), torch.randn(12, 16))
    assert len(done.kernels) == 1 and done.stayed == []


def test_rows_that_are_spread_over_a_tensor(fuse: Any) -> None:
    """Batch norm: a row is all of a channel, in pieces of a cache line at least, or has few elements."""

    def f(x: Tensor) -> Tensor:
        return (x - x.mean((0, 2, 3), keepdim=True)).tanh()

    assert len(fuse(f, torch.randn(2, 3, 4, 4)).kernels) == 1
    assert fuse(f, torch.randn(8, 3, 1, 4)).stayed == ["aten.mean.dim"]
    assert len(fuse(f, torch.randn(2, 3, 1, 4)).kernels) == 1


def test_a_call_that_gains_is_a_kernel_of_its_own(fuse: Any) -> None:
    assert fuse(lambda x: (x @ x).softmax(-1) @ x, torch.randn(64, 64)).kernels == [("aten._softmax",)]
    assert fuse(lambda x: (x @ x).relu() @ x, torch.randn(64, 64)).kernels == []


def test_a_softmax_over_a_middle_dim_is_a_kernel(fuse: Any) -> None:
    done = fuse(lambda x: (x * 2).softmax(1) + 1, torch.randn(3, 4, 5))
    assert len(done.kernels) == 1 and not done.stayed


def test_random_and_unknown_ops_stay(fuse: Any) -> None:
    def f(x: Tensor) -> Tensor:
        return x.cumsum(0) * 2 + x.sort().values

    done = fuse(f, torch.randn(6))
    assert "aten.cumsum" in done.stayed and "aten.sort" in done.stayed and len(done.kernels) == 1


def test_empty_and_scalar_tensors(fuse: Any) -> None:
    assert fuse(lambda x: (x * 2).exp() + 1, torch.randn(0, 3)).kernels == []
    assert len(fuse(lambda x, y: (x * 2).exp() + y, torch.randn(()), torch.randn(())).kernels) == 1


def test_a_heavy_row_value_is_computed_once(fuse: Any) -> None:
    """exp of a row's sum is not computed again for each of its elements."""
    done = fuse(lambda x: x * x.sum(1, keepdim=True).exp(), torch.randn(4, 8))
    assert len(done.kernels) == 1 and str(done.module).count("math.exp") == 1
    assert str(done.module).count("linalg.generic") == 3


def test_rounding(fuse: Any) -> None:
    """Fused: 16-bit floats are rounded at the kernel's end alone. Eager: bit for bit what eager gives."""
    x = torch.randn(4, 64).bfloat16()
    f = lambda x: ((x * 1.5 + 0.25) * x - 1) * 3  # noqa: E731
    eager, fused = fuse(f, x, rounding="eager"), fuse(f, x)
    assert torch.equal(eager.results[0], f(x))
    assert torch.equal(fused.results[0], f(x.float()).bfloat16())
    assert str(fused.module).count("arith.truncf") < str(eager.module).count("arith.truncf")


def test_decisions_say_why(fuse: Any) -> None:
    def f(x: Tensor) -> Tensor:
        return (x.sum(1, keepdim=True) * x).exp() * (x.sum(0, keepdim=True) + 1)

    texts = [str(d) for *_, d in fuse(f, torch.randn(6, 8)).decisions]
    assert any(t.startswith("fused: saves ") for t in texts)
    assert any(t.startswith("not fused: a sum over columns would be broadcast") for t in texts), texts


def test_what_is_dear_is_not_made_again_after_a_sum_over_columns(fuse: Any) -> None:
    def f(x: Tensor) -> Tensor:
        y = torch.nn.functional.gelu(x)
        return y - y.sum(0)

    def cheap(x: Tensor) -> Tensor:
        y = x * 2
        return y - y.sum(0)

    done = fuse(f, torch.randn(6, 64))
    assert any(
        "would be recomputed for the values to which the sum is broadcast" in str(d)
        for *_, d in done.decisions
    )
    assert not any({"aten.gelu", "aten.sum.dim_IntList", "aten.sub.Tensor"} <= set(k) for k in done.kernels)
    assert len(fuse(cheap, torch.randn(6, 64)).kernels) == 1


def test_what_shares_single_elements_alone_is_refused_at_once(fuse: Any) -> None:
    """A learning rate has no dim that two updates could share, wherever it is computed."""

    def updates(rate: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * rate, y * rate

    done = fuse(updates, torch.randn(()), torch.randn(6, 4), torch.randn(8, 4))
    (decision,) = [decision for *_, decision in done.decisions]
    assert not decision.fused and decision.why == NO_COMMON_DIMS


@pytest.mark.parametrize("dim", [-1, 2])
def test_a_stack_along_the_last_dim_is_a_kernel_of_its_own(dim: int, fuse: Any) -> None:
    x, y = torch.randn(64, 70), torch.randn(64, 70)
    assert fuse(lambda x, y: torch.stack([x, y], dim), x, y).kernels == [("aten.stack",)]
    assert fuse(lambda x, y: torch.stack([x, y], 0), x, y).stayed == ["aten.stack"]


def test_groups_share_a_tensor_by_any_of_their_reads(fuse: Any) -> None:
    """The first read of the second group is a slice, which agrees with no read of the first one."""

    def f(x: Tensor) -> Tensor:
        size = (x * x).sum(1)
        return size + (x * (x[:, :1] / size[:, None])).mean(1)

    assert len(fuse(f, torch.rand(2, 12, 8, 40) + 1).kernels) == 1


def test_short_rows_may_be_anywhere(fuse: Any) -> None:
    """The classes are dim 1 of what is read, and last in what is written."""
    done = fuse(lambda x: torch.softmax(x, 1).transpose(1, 2).contiguous() * 2, torch.randn(3, 16, 40))
    assert len(done.kernels) == 1
