"""The plain ``Trainer`` with ``torch.compile`` by shardc: ``model.compile(backend="shardc")`` before it."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Trainer, TrainingArguments

from shardc.diagnostics.dynamo import ShardcFallbackWarning

ROWS = [{"x": torch.randn(8, generator=torch.Generator().manual_seed(i)), "labels": i % 4} for i in range(24)]


class Classifier(nn.Module):
    """Its loss is the first of what it returns, as ``Trainer`` expects."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.layers(x)
        return functional.cross_entropy(logits, labels), logits


def losses(model: nn.Module, folder: Path) -> list[float]:
    args = TrainingArguments(
        str(folder),
        use_cpu=True,
        logging_steps=1,
        learning_rate=1e-2,
        num_train_epochs=2,
        disable_tqdm=True,
        save_strategy="no",
    )
    made = Trainer(model=model, args=args, train_dataset=ROWS)
    made.train()
    return [entry["loss"] for entry in made.state.log_history if "loss" in entry]


@pytest.mark.slow
def test_a_compiled_model_trains_as_the_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDC_CACHE_DIR", str(tmp_path / "cache"))
    torch.compiler.reset()
    plain, model = losses(Classifier(), tmp_path / "plain"), Classifier()
    model.compile(backend="shardc")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ShardcFallbackWarning)
        compiled = losses(model, tmp_path / "compiled")
    assert compiled == pytest.approx(plain, rel=1e-5) and len(plain) == 6 and plain[-1] < plain[0]
    assert [*(tmp_path / "cache").rglob("*.so")], "no kernel was compiled"


def test_the_argument_is_refused_by_accelerate(tmp_path: Path) -> None:
    """Why the model is compiled before: accelerate knows the backends of its own list alone."""
    args = TrainingArguments(str(tmp_path), use_cpu=True, torch_compile_backend="shardc")
    with pytest.raises(ValueError, match="SHARDC"):
        Trainer(model=Classifier(), args=args, train_dataset=ROWS)
