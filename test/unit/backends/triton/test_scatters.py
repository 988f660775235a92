"""Sums at computed indices as Triton kernels: in the interpreter against eager in f64, and compiled for each
target.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from shardc.backends.torch.emit_graph import emit_graph
from shardc.backends.triton.aot.compile import compile_kernels
from shardc.backends.triton.emit.scatter import RUN
from shardc.backends.triton.interpreter.interpret import Interpreter
from shardc.cost.machine import GPUS
from shardc.diagnostics.triton import InterpreterFailed

from .contractions import interpret
from .programs import emitted, fused

aten = torch.ops.aten
Check = Callable[..., None]


def gradient(rows: int, padding: int = -1) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda u, i: aten.embedding_dense_backward(u, i, rows, padding, False)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [1, 16, 100, 300])
@pytest.mark.parametrize("rows", [1, 5, 300])
def test_gradients_of_embeddings(check: Check, rows: int, width: int) -> None:
    """Rows that many positions name, over several runs, and rows that none does; alone, and where another sum
    waits.
    """
    index, updates = torch.randint(rows, (3, 43)), torch.randn(3, 43, width)
    check(gradient(rows, 0), updates, index.to(torch.int32))
    check(lambda u, i, t: gradient(rows)(u, i) + t, updates, index, torch.randn(rows, width))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "index",
    [
        [7] * (4 * RUN + 3),
        [0] * RUN + [1] * RUN + [2] * RUN,
        [0] * (RUN - 1) + [1] * (2 * RUN) + [2] * 2,
        [0] * (RUN + 1) + [1] * (RUN - 1) + [2],
        list(range(RUN * 2)),
        [5],
    ],
    ids=["one row", "whole runs", "over whole runs", "ends with a run", "all differ", "one"],
)
def test_rows_and_runs(check: Check, index: list[int]) -> None:
    """Rows that begin, go on and end where runs of positions do, in whatever order positions come."""
    given = torch.tensor(index)
    check(gradient(RUN * 2), torch.randn(len(index), 20), given)
    mixed = given[torch.randperm(len(index))]
    check(gradient(RUN * 2), torch.randn(len(index), 20), mixed)


SCATTERS: dict[str, Callable[..., Any]] = {
    "rows": lambda t, i, u: aten.index_put(t, [i], u, True),
    "rows from the end": lambda t, i, u: aten.index_put(t, [i - 6], u, True),
    "rows of what is made": lambda t, i, u: aten.index_put(t * 2, [i], u, True),
    "into ones": lambda t, i, u: aten.index_put(torch.ones_like(t), [i], u, True),
    "a middle dim": lambda t, i, u: aten.index_put(
        t, [None, i[:, 0]], u.flatten(0, 1).transpose(0, 1)[:, :3], True
    ),
    "index_add": lambda t, i, u: aten.index_add(t, 1, i[0], u.flatten(0, 1).transpose(0, 1)[:, 3:5]),
    "elements": lambda t, i, u: aten.index_put(
        t.flatten(1), [None, i.flatten()], u.flatten(1)[:, :6].repeat(2, 1), True
    ),
    "a vector": lambda t, i, u: aten.index_add(t[:, 0, 0] * 1, 0, i.view(-1), u[..., 0, 0].reshape(-1)),
    "scatter_add of rows": lambda t, i, u: aten.scatter_add(
        t[0], 0, i.view(6, 1).expand(6, 33), u.view(-1, 33)[:6]
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32], ids=str
)
def test_scatters(check: Check, name: str, dtype: torch.dtype) -> None:
    index = torch.tensor([[0, 4], [2, 1], [4, 4]])
    check(
        SCATTERS[name], (torch.randn(6, 6, 33) * 9).to(dtype), index, (torch.randn(3, 2, 6, 33) * 9).to(dtype)
    )


@pytest.mark.slow
def test_16_bits_are_added_up_in_f32() -> None:
    """To within one rounding of the exact sum of 500 terms."""
    updates, index = torch.rand(500, 40).bfloat16(), torch.arange(500) % 3
    (kernel,) = emitted(fused(gradient(9), updates, index))
    (got,) = interpret(kernel, [index, updates], [((9, 40), torch.bfloat16)])
    exact = torch.zeros(9, 40).double().index_add(0, index, updates.double())
    assert ((got.double() - exact).abs() <= exact.abs() * 2.0**-8 * 1.01).all()


@pytest.mark.parametrize("index", [[0, 9, 1], [0, -5, 1]], ids=str)
def test_a_wrong_index_is_an_error(interpreter: Interpreter, index: list[int]) -> None:
    table, updates = torch.zeros(4, 20), torch.randn(3, 20)
    module = fused(SCATTERS["rows"], table, torch.tensor([0, 1, 2]), updates)
    with pytest.raises(
        InterpreterFailed, match=f"index {index[1]} is out of bounds for dimension 0 with size 4"
    ):
        interpreter.run(emit_graph(module, [0]), emitted(module), [table, torch.tensor(index), updates])


@pytest.mark.slow
@pytest.mark.parametrize("target", GPUS)
def test_compiled(target: str, tmp_path: Path) -> None:
    """No atomics, no spills, 16 bytes a load of the updates; the gradient of a tied embedding of GPT-2, and
    one of bf16.
    """
    wide = fused(
        lambda u, i, t: gradient(50257)(u, i) + t,
        *_gpt2(torch.float32),
        torch.empty(50257, 768, device="meta"),
    )
    narrow = fused(gradient(50257), *_gpt2(torch.bfloat16))
    for kernel in (*emitted(wide, GPUS[target]), *emitted(narrow, GPUS[target])):
        assert "atomic" not in kernel.text
        assert kernel.estimate is not None and kernel.estimate.roofline_s < kernel.estimate.seconds
        (compiled,) = compile_kernels([kernel], [GPUS[target]], tmp_path, processes=1)
        assert compiled.error is None, compiled.error
        for function in compiled.functions:
            assert function.spill_bytes == 0 and function.local_accesses == 0, function
            assert function.wide_loads or function.name != kernel.name, function


def _gpt2(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.empty(8, 1024, 768, dtype=dtype, device="meta"), torch.empty(
        8, 1024, dtype=torch.int64, device="meta"
    )


def test_an_embedding_layer_trains(check: Check) -> None:
    """Forward reads the rows that backward adds to."""

    def step(table: Tensor, index: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        return F.embedding(index, table) * 2, aten.embedding_dense_backward(grad * 2, index, 50, -1, False)

    check(step, torch.randn(50, 24), torch.randint(50, (4, 20)), torch.randn(4, 20, 24))


def _edges(x: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Rows of nodes, weighted, added to the rows of other nodes."""
    return torch.zeros_like(x).index_add(0, target, x[source] * w[:, None])


def _heads(x: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Rows of several dims of columns, and two dims of positions."""
    sent = (x[source] - 2 * w[:, None]).unflatten(1, (2, -1)).unflatten(0, (2, -1))
    return x.new_ones(len(x), 2, x.shape[1] // 2).index_put((target.view(2, -1),), sent, accumulate=True)


def _columns(x: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return x.new_zeros(3, len(x)).index_add(1, target, torch.stack([w, w * w, x[source, 0]]) + 1)


@pytest.mark.parametrize("function", [_edges, _heads, _columns])
def test_updates_that_the_kernel_computes(check: Check, function: Callable[..., Tensor]) -> None:
    source, target = torch.randint(40, (2, 4 * RUN + 6))
    check(function, torch.randn(40, 12), torch.rand(4 * RUN + 6), source, target)
