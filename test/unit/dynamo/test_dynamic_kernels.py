"""Kernels of graphs with symbolic sizes: compiled once, run for every size, right for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from shardc.dynamo import program as graph_program

Wrap = Callable[..., Any]
WEIGHT = torch.linspace(0.5, 2, 8)
SIZES = (5, 3, 7, 129, 128)


def _close(found: Any, wanted: Any) -> None:
    """f32 within 1e-5 of the largest element of an f64 reference; all else equal, layout included."""
    pairs = zip(*([x] if isinstance(x, Tensor) else list(x) for x in (found, wanted)), strict=True)
    for a, b in pairs:
        assert (a.shape, a.is_contiguous()) == (b.shape, b.is_contiguous())
        if a.dtype.is_floating_point:
            scale = b.abs().nan_to_num(0).max().item() if b.numel() else 0.0
            torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5 * scale, equal_nan=True)
        else:
            assert torch.equal(a, b)


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "pointwise": lambda x: functional.gelu(x * 2 + 1) * x,
    "rows": lambda x: torch.softmax(x * 2, -1) + 1,
    "layer_norm": lambda x: functional.layer_norm(x + 1, (8,), WEIGHT.to(x.dtype)) * 2,
    "columns": lambda x: (x * x).sum(0) + 1,
    "columns_and_rows": lambda x: ((x * x).sum(0) + 1, (x + 1).exp()),
    "all": lambda x: (x * x + 1).sum(),
    "mean": lambda x: (x * x + 1).mean(),
    "variance": lambda x: (x.t().contiguous() * 2).var(-1) + 1,
    "extrema": lambda x: ((x + 1).amax(0) * 2, (x * 2).amin(-1) + 1),
    "transposed": lambda x: (x.t() * 2 + 1, (x.t().contiguous() * 2).exp()),
    "transposed_among_others": lambda x: (x.t() * 2 + 1).contiguous() @ (x.sin() + x),
    "columns_of_a_slice": lambda x: (x[:, 1:5] * 2 + 1).exp(),
    "two_thirds_of_the_rows": lambda x: (x[: x.shape[0] * 2 // 3] * 2 + 1).exp(),
    "reshaped": lambda x: ((x.view(-1) * 2 + 1).exp()).view(x.shape[0], 2, 4).transpose(1, 2) + 1,
    "middle": lambda x: (x.view(x.shape[0], 2, 4) * 2).sum(1) + 1,
    "concatenated": lambda x: (torch.cat([x, x + 1]) * 2 + 1).mean(0) * 3,
    "sizes_as_numbers": lambda x: (x * x.shape[0] + x.shape[0]) / x.numel(),
    "square_of_a_size": lambda x: ((x[:, 0].unsqueeze(1) * x[:, 1].unsqueeze(0) + 1).exp()).sum(-1) * 2,
    "expanded": lambda x: (x.unsqueeze(1).expand(-1, 3, -1) * 2 + 1).sum(-1) + 1,
    "integers": lambda x: ((x > 0).long() * 3 + 1).sum(-1) * 2,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_compile_for_all_sizes(compiled: Wrap, programs: list[str], name: str) -> None:
    run = compiled(FUNCTIONS[name], fuse=True, dynamic=True)
    for n in SIZES:
        x = torch.randn(n, 8)
        _close(run(x), FUNCTIONS[name](x.double()))
    assert len(programs) == 1
    assert "= kernel(" in programs[0]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_rows_and_one(compiled: Wrap, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Dynamo makes programs of their own for sizes 0 and 1; the one for all sizes has them right too."""
    made: list[tuple[Callable[..., Any], list[Any]]] = []
    load = graph_program.load

    def recorded(*args: Any) -> Callable[..., Any]:
        function = load(*args)

        def call(rank: SimpleNamespace, inputs: list[Any]) -> Sequence[object]:
            made.append((function, list(inputs)))
            return function(rank, inputs)

        return call

    monkeypatch.setattr(graph_program, "load", recorded)
    compiled(FUNCTIONS[name], fuse=True, dynamic=True)(torch.randn(5, 8))
    ((function, inputs),) = made
    for n in (0, 1, 300):
        x = torch.randn(n, 8)
        try:
            wanted = FUNCTIONS[name](x.double())
        except IndexError:  # the extremum of nothing
            continue
        given = [_replaced(i, x) for i in inputs]
        found = function(SimpleNamespace(device=torch.device("cpu")), given)
        for a, b in zip(found, [wanted] if isinstance(wanted, Tensor) else wanted, strict=True):
            assert a.shape == b.shape
            torch.testing.assert_close(a.double(), b.double(), rtol=1e-5, atol=1e-4, equal_nan=True)


def _replaced(given: Any, x: Tensor) -> Any:
    """What stands for an argument of the call on 5 rows in one on those of ``x``."""
    if isinstance(given, Tensor):
        return x if given.shape == (5, 8) else given
    return len(x) if given == 5 else given


class Layer(nn.Module):
    """Attention written out, and a gelu block."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.maps = nn.ModuleList(
            (nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(32, 16))
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.maps[0](self.norms[0](x)).view(b, t, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = (q @ k.transpose(-1, -2) / 3).masked_fill(mask, float("-inf")).softmax(-1)
        x = x + self.maps[1]((weights @ v).transpose(1, 2).reshape(b, t, 16))
        return x + self.maps[3](functional.gelu(self.maps[2](self.norms[1](x))))


@pytest.mark.slow
def test_a_layer_of_any_batch_and_length(compiled: Wrap, programs: list[str]) -> None:
    layer = Layer()
    run = compiled(layer, fuse=True, dynamic=True)
    wide = Layer().double()
    wide.load_state_dict(layer.state_dict())
    for batch, length in ((3, 7), (2, 5), (4, 129), (5, 33)):
        x = torch.randn(batch, length, 16)
        seen = []
        for model, function, given in ((layer, run, x), (wide, wide, x.double())):
            given = given.clone().requires_grad_()
            out = function(given)
            seen.append(
                [out.detach(), *torch.autograd.grad((out * out).mean(), [given, *model.parameters()])]
            )
        _close(*seen)
    assert len(programs) == 2
    assert all(text.count("= kernel(") >= 2 for text in programs)


def test_rotary_positions_of_any_length(compiled: Wrap, programs: list[str]) -> None:
    def rotated(q: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        a, b = q[..., :4], q[..., 4:]
        cos, sin = cos[: q.shape[2]], sin[: q.shape[2]]
        return a * cos - b * sin, b * cos + a * sin

    run, table = compiled(rotated, fuse=True, dynamic=True), [torch.randn(64, 4) for _ in range(2)]
    for batch, length in ((6, 7), (2, 5), (3, 33)):
        q = torch.randn(batch, 3, length, 8)
        _close(run(q, *table), rotated(q.double(), *(t.double() for t in table)))
    assert len(programs) == 1


def test_draws_are_those_of_static_sizes(compiled: Wrap, programs: list[str]) -> None:
    f = lambda x: functional.dropout(x * 2, 0.3) + 1  # noqa: E731
    run = compiled(f, fuse=True, dynamic=True)
    for n, m in ((5, 6), (3, 7), (9, 129)):
        x = torch.randn(n, m)
        torch.manual_seed(n)
        found = run(x)
        torch.manual_seed(n)
        assert torch.equal(found, compiled(lambda x: f(x), dynamic=False)(x))
    assert "uniform" not in programs[0].replace("uniform_", "")


def test_results_too_large_for_the_heap_come_from_the_pool(compiled: Wrap) -> None:
    f = lambda x: (x * 2 + 1).exp()  # noqa: E731
    run = compiled(f, fuse=True, dynamic=True)
    for n in (4, 1 << 14):
        x = torch.randn(n, 16)
        torch.testing.assert_close(run(x), f(x))


@pytest.mark.slow
def test_state_of_fixed_sizes_is_written_in_place(compiled: Wrap, programs: list[str]) -> None:
    """In a graph with symbolic sizes the kernels of parameters have none, so they take any number of
    elements.
    """

    def update(x: Tensor, parameters: list[Tensor], moments: list[Tensor]) -> Tensor:
        for p, m in zip(parameters, moments, strict=True):
            m.mul_(0.9).add_(p * 0.5)
            p.sub_(m * 0.1)
        return (x * 2).exp() + 1

    def state() -> tuple[list[Tensor], list[Tensor]]:
        generator = torch.Generator().manual_seed(0)
        return tuple([torch.randn(n, 8, generator=generator) for n in (3, 16)] for _ in range(2))  # type: ignore[return-value]

    run = compiled(update, fuse=True)
    (parameters, moments), (wanted_parameters, wanted_moments) = state(), state()
    for n in SIZES:
        x = torch.randn(n, 8)
        torch._dynamo.mark_dynamic(x, 0)
        _close(run(x, parameters, moments), update(x.double(), wanted_parameters, wanted_moments))
        for found, wanted in zip((*parameters, *moments), (*wanted_parameters, *wanted_moments), strict=True):
            torch.testing.assert_close(found, wanted)
    (program,) = programs
    assert program.count(" = kernels(") == 1 and "('n0', 8)" in program
    assert program.count(" is not arg") + program.count(" is not primals") == program.count(".copy_(") == 4
