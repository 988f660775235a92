"""Sums at computed indices: gradients of embeddings and of indexing, against eager,
and what is added in the same kernel.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_mlir import ir

from shardc.backends.eager.interpreter import run
from shardc.diagnostics.oracle import ExecutionFailed
from shardc.passes.fuse.grouping.constraints import FusionConstraints
from shardc.passes.fuse.kern_fuse import fuse_module
from shardc.runtime.errors import IndexOutOfRange

from .conftest import assert_near, traced
from .test_random import COUNT

aten = torch.ops.aten
DTYPES = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64], ids=str
)
INDEX = torch.tensor([[0, 3, 2], [1, 3, 3]])
ROWS = torch.linspace(-3, 3, 6 * 900).reshape(2, 3, 900)
TABLE = torch.linspace(-2, 5, 5 * 900).reshape(5, 900)

SCATTERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "embedding": lambda t, i, u: aten.embedding_dense_backward(u, i, 5, -1, False),
    "embedding with padding": lambda t, i, u: aten.embedding_dense_backward(u, i, 5, 3, False),
    "embedding by int32": lambda t, i, u: aten.embedding_dense_backward(u, i.to(torch.int32), 5, 1, False),
    "embedding added": lambda t, i, u: t + aten.embedding_dense_backward(u, i, 5, -1, False),
    "embedding added to what is made": lambda t, i, u: (
        aten.embedding_dense_backward(u, i, 5, -1, False) + t.t().cumsum(0).t()
    ),
    "two embeddings": lambda t, i, u: (
        aten.embedding_dense_backward(u, i, 5, -1, False)
        + aten.embedding_dense_backward(u * 2, i, 5, 3, False)
    ),
    "index_put": lambda t, i, u: aten.index_put(t, [i], u, True),
    "index_put into zeros": lambda t, i, u: aten.index_put(torch.zeros_like(t), [i], u, True),
    "index_put into ones": lambda t, i, u: aten.index_put(torch.ones_like(t), [i], u, True),
    "index_put from the end": lambda t, i, u: aten.index_put(t, [i - 5], u, True),
    "index_put of a middle dim": lambda t, i, u: aten.index_put(
        t.view(3, 5, 300), [None, i[0]], u.reshape(3, 3, 600)[..., :300], True
    ),
    "index_add": lambda t, i, u: aten.index_add(t, 0, i.view(-1), u.view(6, 900)),
    "index_add of a middle dim": lambda t, i, u: aten.index_add(
        t.view(3, 5, 300), -2, i[1], u.reshape(3, 3, 600)[..., :300]
    ),
    "index_put of elements": lambda t, i, u: aten.index_put(
        t.view(900, 5), [None, i[0]], u.reshape(900, 6)[:, :3], True
    ),
    "index_put of elements into a view of zeros": lambda t, i, u: aten.index_put(
        torch.zeros_like(t).view(900, 5), [None, i[0]], u.reshape(900, 6)[:, :3], True
    ),
    "scatter_add of rows": lambda t, i, u: aten.scatter_add(
        t, 0, i.view(6, 1).expand(6, 900), u.view(6, 900)
    ),
}


def scatters(module: ir.Module) -> list[ir.Operation]:
    """The kernels that hold a ``kern.scatter_add``, in order."""
    ops = [o.operation for o in module.body.operations[0].operation.regions[0].blocks[0].operations]
    kernels = [op for op in ops if op.name == "kern.kernel"]
    bodies = ((k, [o.operation.name for o in k.regions[0].blocks[0].operations]) for k in kernels)
    return [k for k, names in bodies if "kern.scatter_add" in names]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SCATTERS)
@DTYPES
def test_scatters(fuse: Any, name: str, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and "elements" in name:
        pytest.skip("elements of 16 bits stay calls")
    f, tensors = SCATTERS[name], (TABLE.to(dtype), INDEX, ROWS.to(dtype))
    done = fuse(f, *tensors)
    assert len(scatters(done.module)) == (2 if name.startswith("two") else 1)
    assert not [
        op
        for op in done.stayed
        if op.split(".")[1] in ("add", "embedding_dense_backward", "index_add", "index_put", "scatter_add")
    ]
    if dtype == torch.bfloat16:
        (exact,) = done.wide
        assert (done.results[0].double() - exact).abs().max() <= (
            f(*tensors).double() - exact
        ).abs().max() + 2**-7
    else:
        assert_near(done.results[0], f(*tensors))


STAY: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "scaled by frequency": lambda t, i, u: aten.embedding_dense_backward(u, i, 5, -1, True),
    "small": lambda t, i, u: aten.embedding_dense_backward(u[..., :4].contiguous(), i, 5, -1, False),
    "of elements of 16 bits": lambda t, i, u: aten.index_put(
        t.view(900, 5).bfloat16(), [None, i[0]], u.reshape(900, 6)[:, :3].bfloat16(), True
    ),
    "two tensors": lambda t, i, u: aten.index_put(t, [i, i], u[..., 0], True),
    "spread updates": lambda t, i, u: aten.index_put(t, [i], u[0, 0], True),
    "not accumulated": lambda t, i, u: aten.index_put(t, [i], u),
    "scaled": lambda t, i, u: aten.index_add(t, 0, i[0], u[0], alpha=2),
    "each element its own": lambda t, i, u: aten.scatter_add(
        t, 0, (u.view(6, 900) > 0).long(), u.view(6, 900)
    ),
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays_a_call(fuse: Any, name: str) -> None:
    done = fuse(STAY[name], TABLE, INDEX, ROWS)
    assert not scatters(done.module)
    assert_near(done.results[0], STAY[name](TABLE, INDEX, ROWS))


def tied(w: Tensor, i: Tensor) -> Tensor:
    w = w.detach().requires_grad_()
    logits = F.linear(F.embedding(i, w, padding_idx=3).tanh(), w)
    return torch.autograd.grad(F.cross_entropy(logits.view(-1, 5), i.view(-1)), w)[0]


def test_the_gradient_of_a_tied_weight_is_written_once(fuse: Any) -> None:
    """In the memory of the other gradient, whose rows are not read unless they are named."""
    done = fuse(tied, TABLE, INDEX)
    (kernel,) = scatters(done.module)
    assert [op.value for op in kernel.attributes["kern.ops"]] == [
        "aten.tanh_backward",
        "aten.embedding_dense_backward",
        "aten.add.Tensor",
    ]
    assert list(ir.DenseI64ArrayAttr(kernel.attributes["in_place"])) == [0, 1]
    (decision,) = [d for _, _, d in done.decisions if d.saved_bytes == (1 << 16) + 2 * TABLE.nbytes]
    assert decision.fused
    assert_near(done.results[0], tied(TABLE, INDEX))


def test_what_is_read_again_is_not_written_to(fuse: Any) -> None:
    def both(t: Tensor, i: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        made = t @ t.t() @ t
        return made + aten.embedding_dense_backward(u, i, 5, -1, False), made

    (kernel,) = scatters(fuse(both, TABLE, INDEX, ROWS).module)
    assert "in_place" not in kernel.attributes


def test_eager_rounding_rounds_before_the_sum(fuse: Any) -> None:
    f, tensors = SCATTERS["embedding added"], (TABLE.bfloat16(), INDEX, ROWS.bfloat16())
    done = fuse(f, *tensors, rounding="eager")
    assert done.stayed == ["aten.add.Tensor"] and len(scatters(done.module)) == 1


def test_wishes() -> None:
    def fused(**constraints: list[str]) -> int:
        module = traced(SCATTERS["embedding added"], [TABLE, INDEX, ROWS])
        fuse_module(module, constraints=FusionConstraints.of(**constraints))
        (kernel,) = scatters(module)
        return len(kernel.attributes["kern.ops"])

    assert fused(forbid=["embedding_dense_backward+add"]) == 1
    assert fused(force=["embedding_dense_backward+add"]) == 2


def test_a_call_that_did_not_compile_stays() -> None:
    module = traced(SCATTERS["embedding added"], [TABLE, INDEX, ROWS])
    fuse_module(module)
    (kernel,) = scatters(module)
    calls = frozenset(call.value for call in kernel.attributes["kern.calls"])
    module = traced(SCATTERS["embedding added"], [TABLE, INDEX, ROWS])
    fuse_module(module, without=calls)
    assert not scatters(module) and "torch.aten.add.Tensor" in str(module)


@pytest.mark.parametrize(
    ("f", "index", "message"),
    [
        (
            lambda t, i, u: aten.index_put(t, [i], u[0, :2], True),
            [5, 0],
            "index 5 is out of bounds for dimension 0 with size 5",
        ),
        (
            lambda t, i, u: aten.index_put(t, [i], u[0, :2], True),
            [-6, 0],
            "index -6 is out of bounds for dimension 0 with size 5",
        ),
        (
            lambda t, i, u: aten.index_add(t, 0, i, u[0, :2]),
            [0, -1],
            "index -1 is out of bounds for dimension 0 with size 5",
        ),
        (
            lambda t, i, u: aten.index_add(t.view(-1), 0, i, u[0, 0, :2]),
            [0, 4500],
            "index out of range in self",
        ),
    ],
)
def test_an_index_out_of_range_is_the_error_that_eager_raises(f: Any, index: list[int], message: str) -> None:
    tensors = [TABLE, torch.tensor(index), ROWS]
    with pytest.raises((IndexError, RuntimeError), match=message):
        f(*tensors)
    module = traced(f, tensors)
    fuse_module(module)
    assert scatters(module)
    with pytest.raises(ExecutionFailed, match=message) as failed:
        run(module, [[t] for t in tensors])
    assert isinstance(failed.value.__cause__, IndexOutOfRange)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(COUNT // 2))
def test_random_scatters(seed: int) -> None:
    """Chains of pointwise ops, gathers and sums at computed indices in random order, each op as a kernel by
    itself.
    """
    rng = random.Random(seed)
    rows, width, count = rng.choice([1, 3, 7]), rng.choice([1, 5, 17]), rng.choice([1, 4, 9])
    steps = [(rng.randrange(6), rng.randrange(2)) for _ in range(rng.randint(2, 8))]
    torch.manual_seed(seed)
    tensors = [torch.randn(rows, width), torch.randint(rows, (count,)), torch.randn(count, width)]

    def f(table: Tensor, index: Tensor, updates: Tensor) -> list[Tensor]:
        kept = []
        for kind, more in steps:
            if kind == 0:
                updates = (updates * 0.5).tanh()
            elif kind == 1:
                updates = updates + table[index]
            elif kind == 2:
                made = aten.embedding_dense_backward(
                    updates, index, rows, index[0].new_zeros(()).ndim - 1 + more, False
                )
                table = made + table * 0.5 if more else made
            elif kind == 3:
                table = aten.index_put(table * 2 if more else table, [index - rows], updates, True)
            elif kind == 4:
                table = aten.index_add(table, 0, index, updates)
            else:
                kept.append(table)
        return [*kept, table + 1, updates * 1]

    module = traced(f, tensors)
    exact = [r for [r] in run(module, [[t] for t in tensors], widen=True)]
    fuse_module(module, lone=True)
    module.operation.verify()
    for [found], [wide], wanted, eager in zip(
        run(module, [[t] for t in tensors]),
        run(module, [[t] for t in tensors], widen=True),
        exact,
        f(*tensors),
        strict=True,
    ):
        torch.testing.assert_close(wide, wanted, rtol=1e-12, atol=1e-12)
        assert_near(found, eager)


def _sent(x: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, target, x[source] * w[:, None])


def _added_to_scaled(x: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return (1.1 * x).index_add(0, target, x.index_select(0, source) + w[:, None])


def _heads(x: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    sent = (torch.exp(x[source]) * w[:, None]).view(-1, 4, 12)
    return x.new_zeros(len(x), 4, 12).index_put((target,), sent, accumulate=True)


def _numbers(x: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return x.new_zeros(len(x)).index_add(0, target, 2 * w + x[source, 0])


def _spread(x: Tensor, w: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return torch.zeros_like(x).scatter_add(0, target[:, None].expand(-1, 48), w[:, None].expand(-1, 48))


def _blocks(x: Tensor, weight: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """Each index adds a block of rows, whose loops are not those of the index: an attention of blocks."""
    shares, rows = weight.view(250, 20), x[:250]
    blocks = (shares[:, :, None] * rows[:, None]).view(1250, 4, 48)
    return aten.index_put(x.new_zeros(75, 4, 48), [target[:1250] % 75], blocks, True)


def _first(kernel: ir.Operation) -> str:
    return kernel.regions[0].blocks[0].operations[0].operation.name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", [_sent, _added_to_scaled, _heads, _numbers, _spread, _blocks])
def test_updates_that_the_kernel_computes(fuse: Any, function: Callable, dtype: torch.dtype) -> None:
    """Rows of edges are not written: the kernel of the sum is the only one that computes floats."""
    source, target = torch.randint(300, (2, 5000))
    tensors = (torch.randn(300, 48).to(dtype), torch.rand(5000).to(dtype), source, target)
    done = fuse(function, *tensors)
    (kernel,) = scatters(done.module)
    assert dtype == torch.bfloat16 or _first(kernel) != "kern.scatter_add"
    compiled = torch.compile(function, backend="shardc", dynamic=False)
    exact = function(*(t.double() if t.is_floating_point() else t for t in tensors))
    torch.testing.assert_close(
        compiled(*tensors).double(),
        exact,
        rtol=2e-2 if dtype == torch.bfloat16 else 1e-5,
        atol=1e-4 if dtype == torch.float32 else 0.3,
    )


def test_an_index_out_of_range_is_an_error_where_rows_are_read_in_the_sum() -> None:
    tensors = (torch.randn(300, 48), torch.rand(9), torch.tensor([*range(8), 300]), torch.arange(9))
    compiled = torch.compile(_sent, backend="shardc", dynamic=False)
    with pytest.raises(IndexError, match="index 300 is out of bounds"):
        compiled(*tensors)
    with pytest.raises(IndexError, match="index out of range in self"):
        torch.compile(_added_to_scaled, backend="shardc", dynamic=False)(*tensors)


def test_updates_that_others_read_are_read_from_memory(fuse: Any) -> None:
    def both(a: Tensor, b: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        sent = 2 * a + b
        return a.new_zeros(300, 48).index_add(0, target, sent), sent

    done = fuse(both, torch.randn(2000, 48), torch.randn(2000, 48), torch.randint(300, (2000,)))
    (kernel,) = scatters(done.module)
    assert _first(kernel) == "kern.scatter_add"
