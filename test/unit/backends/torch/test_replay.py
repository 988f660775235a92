"""Calls on the meta device are made again as they were computed: peaks are the same without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import shardc
from shardc.backends.torch.memory.replay import Replay
from shardc.compiler.memory import step_peak

aten = torch.ops.aten
CALLS: dict[str, Callable[[Replay], object]] = {
    "new": lambda r: r.call(aten.add.Tensor, (meta(2, 3), meta(3)), {}),
    "view": lambda r: r.call(aten.t.default, (meta(2, 3),), {}),
    "views": lambda r: r.call(aten.split.Tensor, (meta(4, 3), 2), {}),
    "offset": lambda r: r.call(aten.select.int, (meta(4, 3), 0, 2), {}),
    "several": lambda r: r.call(aten.native_layer_norm.default, (meta(4, 3), [3], None, None, 1e-5), {}),
    "in place": lambda r: r.call(aten.add_.Tensor, (meta(2, 3), 1), {}),
    "by name": lambda r: r.call(aten.sum.dim_IntList, (meta(2, 3), [0]), {"dtype": torch.float64}),
}


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def described(made: Any) -> list[tuple[object, ...]]:
    results = made if isinstance(made, tuple | list) else [made]
    return [(r.shape, r.stride(), r.storage_offset(), r.dtype, r.untyped_storage().nbytes()) for r in results]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_made_again_is_the_call(name: str) -> None:
    replay = Replay()
    first, again = (described(CALLS[name](replay)) for _ in range(2))
    assert first == again


def test_views_are_of_the_memory_that_is_given() -> None:
    replay = Replay()
    for _ in range(2):
        x = meta(4, 3)
        made = replay.call(aten.t.default, (x,), {})
        assert isinstance(made, torch.Tensor)
        assert made.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_what_works_in_place_gives_its_operand() -> None:
    replay = Replay()
    for _ in range(2):
        x = meta(4, 3)
        assert replay.call(aten.add_.Tensor, (x, 1), {}) is x


def test_one_tensor_twice_is_not_two_tensors() -> None:
    replay, x, y = Replay(), meta(4), meta(4)
    replay.call(aten.add.Tensor, (x, x), {})
    replay.call(aten.add.Tensor, (x, y), {})
    assert len(replay._known) == 2


def test_true_is_not_1() -> None:
    replay = Replay()
    for value in (1, True, 1.0):
        replay.call(aten.full.default, ([2], value), {"device": "meta"})
    assert len(replay._known) == 3


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(3)]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [{"fuse": False}, {}], ids=["calls", "kernels"])
def test_peaks_are_the_same_without_it(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Layers()
    step = shardc.compile_step(
        model,
        torch.optim.AdamW(model.parameters()),
        torch.randn(4, 8, 16),
        mesh={"data": 2},
        plan="zero3",
        loss=lambda out, _: out,
        **options,
    )
    replayed = step_peak(step.compiled.program)
    monkeypatch.setattr(Replay, "call", lambda self, func, args, kwargs: func(*args, **kwargs))
    assert step_peak(step.compiled.program) == replayed
