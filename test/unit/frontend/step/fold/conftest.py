"""A step captured with and without copies of layers, as text with locations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from shardc.environment import FOLD_LAYERS, changed
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.fold.replay import Copied


@dataclass(frozen=True)
class Both:
    """Level 1 in both ways. ``copies``: calls that were copied, even if all was traced again then."""

    plain: str
    folded: str
    copies: int


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Both]:
    """``both(make, batch, **options)`` captures a step of ``make()`` in both ways."""
    copies: list[Copied] = []
    run = Copied.run

    def counted(self: Copied) -> object:
        copies.append(self)
        return run(self)

    monkeypatch.setattr(Copied, "run", counted)

    def captured(make: Callable[[], nn.Module], batch: Any, **options: Any) -> Both:
        texts = []
        for value in ("0", "1"):
            with changed({FOLD_LAYERS.name: value}):
                texts.append(level1(make(), batch, **options))
            assert value == "1" or not copies
        return Both(*texts, len(copies))

    return captured


def level1(model: nn.Module, batch: Any, **options: Any) -> str:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    capture = capture_step(model, optimizer, batch, **options)
    return capture.module.operation.get_asm(assume_verified=True, enable_debug_info=True)
