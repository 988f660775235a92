"""Attention of any batch and length under ``torch.compile``: kernels compiled once, next to eager in f64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from shardc.dynamo import program as graph_program

FORWARD, BACKWARD = (
    f'kernel("scaled_dot_product_flash_attention_for_cpu_{part}' for part in ("", "backward_")
)
Sizes = tuple[int, int, int]
Wrap = Callable[..., Any]
THREADS = (1, 3)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets how many threads kernels run on, for this test alone."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Of tensors with heads beside their sizes, as a model's matmuls make them."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    y = functional.scaled_dot_product_attention(
        q, k, v, mask, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )
    return y.transpose(1, 2).flatten(2)


def results(
    function: Callable[..., Tensor], tensors: list[Tensor], mask: Tensor | None, causal: bool
) -> list[Tensor]:
    """The result and the gradients of q, k and v."""
    given = [t.clone().requires_grad_() for t in tensors]
    for x in given:
        torch._dynamo.mark_static(x, (2, 3))  # as the heads of a model are
    out = function(*given, mask, causal)
    return [out.detach(), *torch.autograd.grad((out * out).sum(), given)]


def check(
    run: Callable[..., Tensor], sizes: Sizes, kv_heads: int, masked: bool, dtype: torch.dtype = torch.float32
) -> None:
    batch, queries, keys = sizes
    shapes = [(batch, queries, 4, 12), *[(batch, keys, kv_heads, 12)] * 2]
    tensors = [torch.randn(shape).to(dtype) for shape in shapes]
    mask = (torch.rand(batch, 1, queries, keys) > 0.3) | (torch.arange(keys) == 0) if masked else None
    found = results(run, tensors, mask, not masked)
    expected = results(attend, [t.double() for t in tensors], mask, not masked)
    bound = 1e-5 if dtype == torch.float32 else 2e-2
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == dtype and a.shape == b.shape
        assert (a.double() - b).abs().max() <= bound * b.abs().max(), sizes


SIZES: tuple[Sizes, ...] = ((3, 130, 130), (2, 7, 7), (5, 200, 200), (2, 64, 64), (4, 17, 17))


def assert_once(programs: list[str], settings: int) -> None:
    """One forward and one backward, with kernels, for each number of threads, which PyTorch guards on."""
    assert len(programs) == 2 * settings
    assert all(
        FORWARD in forward and BACKWARD in backward
        for forward, backward in zip(programs[::2], programs[1::2], strict=True)
    )


@pytest.mark.slow
def test_causal_with_shared_heads(
    compiled: Wrap, programs: list[str], threads: Callable[[int], None]
) -> None:
    run = compiled(attend, fuse=True, dynamic=True)
    for count, sizes in itertools.product(THREADS, ((3, 130, 130), (2, 7, 7), (5, 200, 200), (2, 64, 64))):
        threads(count)
        check(run, sizes, 2, masked=False)
    assert_once(programs, len(THREADS))


@pytest.mark.slow
def test_masked_with_keys_of_their_own_number(
    compiled: Wrap, programs: list[str], threads: Callable[[int], None]
) -> None:
    run = compiled(attend, fuse=True, dynamic=True)
    for count, sizes in itertools.product(THREADS, ((2, 30, 70), (3, 129, 7), (5, 16, 200))):
        threads(count)
        check(run, sizes, 4, masked=True)
    assert_once(programs, len(THREADS))


@pytest.mark.slow
def test_bfloat16(compiled: Wrap, programs: list[str]) -> None:
    run = compiled(attend, fuse=True, dynamic=True)
    for sizes in ((2, 30, 30), (3, 65, 65)):
        check(run, sizes, 2, masked=False, dtype=torch.bfloat16)
    assert_once(programs, 1)


def test_no_batch_no_rows_and_one(compiled: Wrap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo makes programs of their own for sizes 0 and 1; the one for all sizes has them right too."""
    made: list[tuple[Wrap, list[Any]]] = []
    load = graph_program.load

    def recorded(*args: Any) -> Wrap:
        function = load(*args)
        return lambda rank, inputs: (made.append((function, list(inputs))), function(rank, inputs))[1]

    monkeypatch.setattr(graph_program, "load", recorded)
    given = [torch.randn(3, 70, 4, 12) for _ in range(3)]
    for x in given:
        torch._dynamo.mark_static(x, (2, 3))
    compiled(attend, fuse=True, dynamic=True)(*given, None, True)
    ((function, inputs),) = made
    for batch, length in ((0, 5), (3, 0), (1, 1), (2, 1)):
        q = torch.randn(batch, length, 4, 12)
        call = [q if isinstance(value, Tensor) else {3: batch, 70: length}[value] for value in inputs]
        (found,) = function(SimpleNamespace(device=torch.device("cpu")), call)
        torch.testing.assert_close(found, attend(q, q, q, None, True))
