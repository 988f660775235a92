"""The loss of a language model in an artefact for a GPU that is not here: no logits, and the same
training.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from interpreted import check_training
from torch import nn

import shardc
from shardc.commands.explain_fusion import explain_path
from shardc.compiler.memory import step_peak

pytest.importorskip("triton", reason="Triton is not installed: its kernels can be neither run nor compiled")

WORDS, SIZE = 300, 24


class Net(nn.Module):
    """A language model without its layers."""

    def __init__(self, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        self.words, self.head = nn.Embedding(WORDS, SIZE), nn.Linear(SIZE, WORDS, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        labels = F.pad(ids, (0, 1), value=-100)[..., 1:].contiguous()
        logits = self.head(self.words(ids).tanh()).float()
        return F.cross_entropy(logits.view(-1, WORDS), labels.view(-1), label_smoothing=self.label_smoothing)


def _training(
    label_smoothing: float = 0.0,
) -> tuple[nn.Module, torch.optim.Optimizer, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = Net(label_smoothing)
    return model, torch.optim.SGD(model.parameters(), lr=0.5), {"ids": torch.randint(WORDS, (3, 21))}


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_it_trains_as_eager_does(micro_batches: int, tmp_path: Path) -> None:
    model, optimizer, batch = _training()
    step = shardc.compile_step(
        model,
        optimizer,
        batch,
        mesh={"data": 1},
        micro_batches=micro_batches,
        target="sm_90",
        matmuls="generated",
    )
    step.save(tmp_path / "out")
    assert step_peak(step.compiled.kernel_module).size_bytes < step_peak(step.compiled.unfused).size_bytes
    names = sorted(path.name for path in (tmp_path / "out" / "kernels").glob("linear_cross_entropy*.py"))
    assert len(names) == 2 and names[1].startswith("linear_cross_entropy_backward")
    said = explain_path(tmp_path / "out")
    assert "unlike" not in said and "aten._log_softmax" in said and "fused: saves a launch" in said
    check_training(_training, tmp_path / "out", rtol=1e-5)


@pytest.mark.slow
@pytest.mark.processes
def test_classes_that_two_ranks_share_out(tmp_path: Path) -> None:
    """Each rank has half of the rows of the head's weight, and the logits of none of the classes
    in memory.
    """
    training = partial(_training, 0.1)
    model, optimizer, batch = training()
    plan = {"head.weight": ["tensor", None]}
    step = shardc.compile_step(
        model,
        optimizer,
        batch,
        mesh={"tensor": 2},
        plan=plan,
        target="sm_90",
        matmuls="generated",
        verify=True,
    )
    step.save(tmp_path / "out")
    assert step_peak(step.compiled.kernel_module).size_bytes < step_peak(step.compiled.unfused).size_bytes
    names = sorted(path.name for path in (tmp_path / "out" / "kernels").glob("linear_cross_entropy*.py"))
    assert (
        len(names) == 2
        and "CLASSES = tl.constexpr(150)" in (tmp_path / "out" / "kernels" / names[0]).read_text()
    )
    check_training(training, tmp_path / "out", rtol=1e-5, ranks=2)
