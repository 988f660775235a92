"""Kernels that write into memory that is there: inputs that the function changes,
and products that nothing else reads.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

Wrap = Callable[..., Any]
Tensor = torch.Tensor


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))


def returned_too(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2).add_(y)
    return x.clone()


def returned_itself(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.mul_(2).add_(y), x.sin()


def old_value_read_later(x: Tensor, y: Tensor) -> Tensor:
    before = x.t()
    x.mul_(2).add_(y)
    return (before @ y).tanh()


def old_value_returned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    before = x * y + 1
    x.mul_(3).add_(before)
    return before, before.t()


def exchanged(x: Tensor, y: Tensor) -> None:
    before = x * 1.5 + 0.25
    x.copy_(y * 2 + 1)
    y.copy_(before)


def swapped(x: Tensor, y: Tensor) -> None:
    before = x.clone()
    x.copy_(y)
    y.copy_(before)


def both_from_one(x: Tensor, y: Tensor) -> None:
    value = x.sin() * y + x
    x.copy_(value)
    y.copy_(value)


def through_a_view(x: Tensor, y: Tensor) -> Tensor:
    x[1:].mul_(2).add_(y[1:])
    return x.sum(0)


def to_another_type(x: Tensor, y: Tensor) -> None:
    x.copy_((x.double() * y + 1).float())


def a_part_written(x: Tensor, y: Tensor) -> Tensor:
    x[1:3] = y[1:3]
    x[4] = y[0]
    return x.sum(0)


def a_part_written_after_reads(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    before, seen = x + 0, x.t()
    x[:, 4:] = y[:, :3]
    return before, seen.sin()


def written_at_indices(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    at = torch.arange(2) * 3
    x.index_copy_(0, at, y[:2].neg())
    fresh = x * 2
    first = fresh.sum()
    fresh.index_put_((at, at), y[0, :2], accumulate=True)
    fresh.scatter_(1, at[None], y[:1, :2])
    return fresh, first


def own_parts_moved(x: Tensor, y: Tensor) -> Tensor:
    fresh = x * y
    fresh[4:] = fresh[:3]
    fresh[:, 0] = 3
    return fresh


def a_spread_number_written(x: Tensor, y: Tensor) -> Tensor:
    return torch.slice_scatter(x[:1].exp().expand(7, 7), y[:2], 0, 1, 3) + 1


FUNCTIONS = [
    returned_too,
    returned_itself,
    old_value_read_later,
    old_value_returned,
    exchanged,
    swapped,
    both_from_one,
    through_a_view,
    to_another_type,
    a_part_written,
    a_part_written_after_reads,
    written_at_indices,
    own_parts_moved,
    a_spread_number_written,
]


def forms(n: int) -> dict[str, tuple[Tensor, Tensor]]:
    base = torch.randn(2 * n, n)
    square = torch.randn(n, n)
    return {
        "contiguous": (torch.randn(n, n), torch.randn(n, n)),
        "transposed": (torch.randn(n, n).t(), torch.randn(n, n)),
        "strided": (torch.randn(2 * n, 2 * n)[::2, ::2], torch.randn(n, 2 * n)[:, n:]),
        "halves": (base[:n], base[n:]),
        "same": (square, square),
    }


def whole(x: Tensor) -> Tensor:
    """All of the memory that a tensor lies in."""
    return torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore::shardc.diagnostics.dynamo.ShardcFallbackWarning")
def test_inputs_that_change(function: Callable[..., Any]) -> None:
    """Results, inputs and what lies around them are as in eager,
    and results keep their values when inputs change again.
    """
    ours = torch.compile(function, backend="shardc")  # inputs that overlap are left to ATen, with a warning
    for name, pair in forms(7).items():
        torch._dynamo.reset()
        twins = copy.deepcopy(pair)  # keeps what shares memory shared
        found, expected = ours(*pair), function(*twins)
        for mine, twin in zip(pair, twins, strict=True):
            torch.testing.assert_close(
                whole(mine), whole(twin), msg=lambda text, name=name: f"{name}: {text}"
            )
        for t in (*pair, *twins):
            t.zero_()
        torch.testing.assert_close(found, expected, msg=lambda text, name=name: f"{name}: {text}")


def test_no_elements(compiled: Wrap) -> None:
    x, y = torch.zeros(0, 3), torch.zeros(0, 3)
    assert compiled(returned_too, fuse=True)(x, y).shape == (0, 3)


def test_an_input_that_is_the_result(compiled: Wrap) -> None:
    x, y = torch.randn(5, 3), torch.randn(5, 3)
    twin = x.clone()
    assert compiled(lambda x, y: x.mul_(2).add_(y), fuse=True)(x, y) is x
    torch.testing.assert_close(x, twin * 2 + y)


def test_running_statistics_of_instances(compiled: Wrap) -> None:
    """They are written through an alias."""
    x, mean, var = torch.randn(2, 3, 4), torch.zeros(3), torch.ones(3)
    twins = mean.clone(), var.clone()

    def f(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return torch.nn.functional.instance_norm(x, mean, var, use_input_stats=True)

    torch.testing.assert_close(compiled(f, fuse=True)(x, mean, var), f(x, *twins))
    torch.testing.assert_close((mean, var), twins)


def test_an_input_takes_its_new_value_without_a_copy(compiled: Wrap, programs: list[str]) -> None:
    x, y = torch.randn(5, 3), torch.randn(5, 3)
    twin, where = x.clone(), x.data_ptr()
    f = compiled(lambda x, y: (x.mul_(2).add_(y), None)[1], fuse=True)
    f(x, y)
    torch.testing.assert_close(x, twin * 2 + y)
    assert x.data_ptr() == where and ", [0])" not in programs[0] and "clone" not in programs[0]
    assert "torch.float32" not in programs[0]  # no new tensor


def test_a_part_is_written_without_a_copy_of_the_rest(compiled: Wrap, programs: list[str]) -> None:
    """A cache that takes one more row; a tensor of the function's own; not what is read again."""

    def f(cache: Tensor, at: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        cache.index_copy_(0, at, row)
        own = cache * 2
        own[1:2] = row
        return own.exp(), cache.sum()

    cache, at, row = torch.randn(9, 4), torch.tensor([5]), torch.randn(1, 4)
    twin, where = cache.clone(), cache.data_ptr()
    torch.testing.assert_close(compiled(f, fuse=True)(cache, at, row), f(twin, at, row))
    assert torch.equal(cache, twin) and cache.data_ptr() == where
    text = programs[-1]
    assert "index_copy_(" in text and ".copy_(" in text
    assert " index_copy(" not in text and " slice_scatter(" not in text and " copy(" not in text

    def kept(x: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        own = x * 2
        return own.index_copy(0, torch.zeros(1, dtype=torch.int64), row), own @ own.t()

    torch.testing.assert_close(compiled(kept, fuse=True)(cache, row), kept(cache, row))
    assert " index_copy(" in programs[-1] and "index_copy_(" not in programs[-1]


def test_a_product_that_one_kernel_reads(compiled: Wrap, programs: list[str]) -> None:
    """Its memory is the result's; not if a view of it is returned, or read after."""
    a, b = torch.randn(9, 9), torch.randn(9, 9)
    alone = lambda a, b: (a @ b) * 2 + 1  # noqa: E731
    torch.testing.assert_close(compiled(alone, fuse=True)(a, b), alone(a, b))
    assert "[0], 81)" in programs[-1]

    def viewed(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        product = a @ b
        return product.t(), product * 2 + 1, product.view(-1)[3:] + 1

    for found, expected in zip(compiled(viewed, fuse=True)(a, b), viewed(a, b), strict=True):
        torch.testing.assert_close(found, expected)


def test_four_threads_write_to_their_own(compiled: Wrap, in_four_threads: Callable[..., None]) -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(0.5).add_(y)
        return (x @ y) * 2 + x

    f = compiled(f, fuse=True)
    given = [(torch.randn(33, 33), torch.randn(33, 33)) for _ in range(4)]
    f(*map(torch.clone, given[0]))

    def work(number: int) -> None:
        x, y = given[number]
        for _ in range(20):
            expected = x * 0.5 + y
            found = f(x, y)
            torch.testing.assert_close(x, expected)
            torch.testing.assert_close(found, (x @ y) * 2 + x, atol=1e-3, rtol=1e-4)

    in_four_threads(work)
