"""Initial values of a step's arguments: batches of every kind, models with and without values."""

from __future__ import annotations

from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import shardc
from shardc.diagnostics.api import NoValues
from shardc.step.compile_step import CompiledStep


def compiled(batch: Any, device: str = "cpu") -> CompiledStep:
    model = torch.nn.Linear(8, 4, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return shardc.compile_step(
        model, optimizer, batch, mesh={"data": 2}, loss=lambda out, _: out.square().mean()
    )


@pytest.mark.parametrize(
    "batch",
    [{"input": torch.ones(4, 8)}, UserDict(input=torch.ones(4, 8)), (torch.ones(4, 8),), torch.ones(4, 8)],
    ids=["dict", "mapping", "tuple", "tensor"],
)
def test_batches(batch: Any, tmp_path: Path) -> None:
    """A mapping that is no dict is what tokenizers of transformers give."""
    step = compiled(batch)
    assert step.check().passed
    step.save(tmp_path / "out")
    (stored,) = load_file(tmp_path / "out" / "batches.safetensors").values()
    assert torch.equal(stored, torch.ones(4, 8))


def test_a_model_without_values_is_saved_without_them(tmp_path: Path) -> None:
    step = compiled((torch.ones(4, 8),), device="meta")
    step.save(tmp_path / "out")
    assert not (tmp_path / "out" / "state.safetensors").exists()
    with pytest.raises(NoValues, match="weight has no values"):
        step.check()
