"""A layer of experts in an artefact for a GPU that is not here: products of computed sizes, and the same
training.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from interpreted import check_training, eager_losses
from torch import nn

import shardc
from shardc.commands.explain_fusion import explain_path

pytest.importorskip("triton", reason="Triton is not installed: its kernels can be neither run nor compiled")

EXPERTS, CHOSEN, SIZE, INNER, CLASSES = 5, 2, 16, 24, 8


class Net(nn.Module):
    """A layer as Mixtral's: each row goes to two experts, of which the last one gets none; and a linear
    classifier.
    """

    def __init__(self) -> None:
        super().__init__()
        self.router, self.head = nn.Linear(SIZE, EXPERTS), nn.Linear(SIZE, CLASSES)
        self.up = nn.Parameter(0.3 * torch.randn(EXPERTS, INNER, SIZE))
        self.down = nn.Parameter(0.3 * torch.randn(EXPERTS, INNER, SIZE))
        nn.init.constant_(self.router.bias[EXPERTS - 1], -100.0)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        share, expert = self.router(x).softmax(-1).topk(CHOSEN, -1)
        order = expert.flatten().argsort(stable=True)
        ends = (expert.flatten()[:, None] == torch.arange(EXPERTS)).sum(0).cumsum(0).to(torch.int32)
        rows = x[order // CHOSEN].bfloat16()
        inner = F.silu(torch._grouped_mm(rows, self.up.bfloat16().transpose(1, 2), offs=ends))
        made = (
            torch._grouped_mm(inner, self.down.bfloat16(), offs=ends).float()
            * share.flatten()[order][:, None]
        )
        return F.cross_entropy(self.head(torch.zeros_like(x).index_add(0, order // CHOSEN, made)), target)


def _training() -> tuple[nn.Module, torch.optim.Optimizer, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = Net()
    batch = {"x": torch.randn(37, SIZE), "target": torch.randint(CLASSES, (37,))}
    return model, torch.optim.SGD(model.parameters(), lr=0.5), batch


@pytest.mark.slow
def test_it_trains_as_eager_does(tmp_path: Path) -> None:
    """Two products forward, and three gradients behind them: the rows of the first need none."""
    model, optimizer, batch = _training()
    step = shardc.compile_step(model, optimizer, batch, mesh={"data": 1}, target="sm_90", matmuls="generated")
    step.save(tmp_path / "out")
    program = str(step.compiled.kernel_module)
    assert program.count('"kern.grouped_matmul"') == 5 and '"torch.aten._grouped_mm"' not in program
    check_training(_training, tmp_path / "out", rtol=5e-3, atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_models_decide_and_explain_says_so(target: str, tmp_path: Path) -> None:
    model, optimizer, batch = _training()
    shardc.compile_step(model, optimizer, batch, mesh={"data": 1}, target=target).save(tmp_path / "out")
    said = explain_path(tmp_path / "out")
    assert "unlike" not in said
    (line, *_) = [
        line for line in said.splitlines() if "_grouped_mm" in line and f"estimated for {target}" in line
    ]
    assert "as calls" in line and "as kernels" in line


def test_on_cpus_they_stay_calls() -> None:
    model, optimizer, batch = _training()
    step = shardc.compile_step(model, optimizer, batch, mesh={"data": 1}, matmuls="generated")
    assert str(step.compiled.kernel_module).count("aten._grouped_mm") >= 4
    assert "kern.grouped_matmul" not in str(step.compiled.kernel_module)
    torch.testing.assert_close(step(batch).reshape(()), eager_losses(_training)[0], rtol=5e-3, atol=5e-3)
