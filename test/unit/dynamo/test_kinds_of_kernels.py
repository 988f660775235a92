"""Every kind of kernel at odd sizes, at one and at none, forward and backward; threads that come and go;
dtypes that kernels lack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn import functional

from shardc.backends.eager.proof.tolerance import difference, magnitude, own_precision
from shardc.diagnostics.dynamo import ShardcFallbackWarning

from .random_programs.check import problem
from .random_programs.how import How
from .random_programs.program import Given, Program

KINDS: dict[str, tuple[tuple[tuple[object, ...], ...], str]] = {
    "pointwise": ((("n", 5), (5,)), "F.gelu({0} * {1} + 0.5).sin()"),
    "pointwise of one dim": ((("n",), ()), "F.silu({0} + 1) * {1}"),
    "turned": ((("n", 7), (7, "n")), "{0}.mT.exp() * {1}"),
    "row reduction": (((3, "n"),), "{0}.sin().softmax(-1) * 2"),
    "many rows": ((("n", 33),), "{0}.log_softmax(-1) * 2"),
    "softmax between rows and columns": (((3, "n", 64),), "({0} * 2).softmax(1) * 2"),
    "layer norm": (((5, "n"), ("n",), ("n",)), "F.layer_norm({0}.sin(), {0}.shape[-1:], {1}, {2}, eps=0.1)"),
    "rms norm": (((5, "n"), ("n",)), "F.rms_norm({0}, {0}.shape[-1:], {1}, eps=0.1)"),
    "group norm": (((2, 4, "n"),), "F.group_norm({0}.sin(), 2, eps=0.1)"),
    "batch norm": (((3, 2, "n"),), "F.silu(F.batch_norm({0}.sin(), None, None, training=True, eps=0.1))"),
    "column reduction": ((("n", 17),), "({0} * {0}).sum(0)"),
    "all elements": ((("n", 17),), "({0}.tanh() + 1).sum()"),
    "cross entropy": (((4, "n"),), "F.cross_entropy({0}, torch.arange(4) % {0}.shape[1])"),
    "cross entropy of many": (
        (("n", 5),),
        "F.cross_entropy({0}, torch.arange({0}.shape[0]) % 5, reduction='sum')",
    ),
    "matmul with what is around it": ((("n", 9), (9, 6), (6,)), "F.gelu({0}.sin() @ {1} + {2})"),
    "matmul over the size": (((5, "n"), ("n", 6)), "torch.relu({0} @ {1}) * 2"),
    "matmul into the size": (((5, 8), ("n", 8)), "F.silu(F.linear({0}, {1})) + 1"),
    "batched matmul": (((3, 4, "n"), (3, "n", 5)), "({0} @ {1}).tanh()"),
    "attention": (
        ((2, 2, "n", 16),),
        "F.scaled_dot_product_attention({0}, {0} * 0.5, {0}.tanh(), is_causal=True)",
    ),
    "attention, head size": (((1, 2, 9, "n"),), "F.scaled_dot_product_attention({0}, {0} * 0.5, {0}.tanh())"),
    "embedding": (((7, "n"),), "F.embedding(torch.arange(10) % 7, {0}).tanh() * 2"),
    "rows at indices": ((("n", 8),), "{0}[torch.arange(5) % {0}.shape[0]].exp() * 2"),
    "parts joined": ((("n", 16), ("n", 16)), "torch.cat([{0} * 2, {1}.sin()], -1)"),
    "halves turned": ((("n", 16),), "torch.cat([-{0}[..., 8:], {0}[..., :8]], -1) * {0}"),
    "a part": ((("n", 16),), "{0}.tanh()[..., 3:9] * 2"),
    "padded": ((("n", 16),), "F.pad({0}, (0, 0, 1, 2)).tanh()"),
}
"""Shapes of the inputs, and what is computed of them."""
SIZES = (0, 1, 7, 127, 129)
NOT_EMPTY = (
    "group norm",
    "batch norm",
    "cross entropy",
    "attention",
    "attention, head size",
    "rows at indices",
)
"""Eager itself refuses these of nothing, or gives NaN."""


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path))


def program_of(kind: str) -> Program:
    """A kind at all of :data:`SIZES`, each with inputs of its own."""
    shapes, text = KINDS[kind]
    sizes = [size for size in SIZES if size or kind not in NOT_EMPTY]
    given = [
        Given(tuple(size if n == "n" else n for n in shape), "f32", "contiguous", True)
        for size in sizes
        for shape in shapes
    ]
    names = [[f"v{number * len(shapes) + k}" for k in range(len(shapes))] for number in range(len(sizes))]
    made = [f"v{len(given) + number}" for number in range(len(sizes))]
    lines = [f"{name} = {text.format(*read)}" for name, read in zip(made, names, strict=True)]
    return Program(1, tuple(given), tuple(lines), tuple(made), (torch.float32,))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_sizes(kind: str, programs: list[str]) -> None:
    refusals: list[str] = []
    assert problem(program_of(kind), How(matmuls="generated"), refusals) == "" and not refusals
    assert any("kernel(" in text or "kernels(" in text for text in programs)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.slow
def test_threads_that_come_and_go(
    compiled: Callable[..., Callable[..., torch.Tensor]], threads: Callable[[int], None]
) -> None:
    """Forward and backward of kernels that are cut over threads, with more and fewer of them from call to
    call.
    """

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = functional.layer_norm(functional.gelu(x @ w), (w.shape[1],))
        heads = h.view(1, 512, 4, -1).transpose(1, 2)
        return (
            functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
            .softmax(-1)
            .square()
            .sum()
        )

    def step(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
        leaves = [t.to(dtype).requires_grad_() for t in (x, w)]
        loss = function(*leaves)
        return [loss.detach(), *torch.autograd.grad(loss, leaves)]

    x, w = torch.randn(512, 96), torch.randn(96, 256)
    run, exact, bound = compiled(f, fuse=True), step(f, torch.float64), own_precision(torch.float32).relative
    for count in (1, 2, 4, 1, 3, 2):
        threads(count)
        for ours, reference in zip(step(run, torch.float32), exact, strict=True):
            assert difference(ours, reference) <= bound * magnitude(reference)
        assert torch.get_num_threads() == count


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64], ids=str
)
def test_a_dtype_that_is_not_compiled_is_reported(dtype: torch.dtype) -> None:
    """ATen runs the graph."""
    x = torch.tensor([0.0, 1.0, 2.0, 4.0]).to(dtype)
    f = lambda x: (x.float().tanh() * 2 + 1, x.to(torch.float64).to(dtype))  # noqa: E731
    with pytest.warns(ShardcFallbackWarning, match=f"the dtype {dtype} is not imported"):
        found = torch.compile(f, backend="shardc")(x)
    for ours, theirs in zip(found, f(x), strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours.double(), theirs.double())
