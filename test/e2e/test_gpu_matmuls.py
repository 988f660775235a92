"""Implementation of matmuls in an artefact for an absent GPU: by the model, or by the user's choice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from interpreted import check_training
from torch import nn

import shardc
from shardc.commands.explain import explain
from shardc.commands.explain_fusion import explain_path
from shardc.diagnostics.api import BadArgument

pytest.importorskip("triton", reason="Triton is not installed: its kernels can be neither run nor compiled")


class Net(nn.Module):
    """Two layers, of which the first has much around its product."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(24, 40), nn.Linear(40, 17)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(self.down(nn.functional.gelu(self.up(x))), target)


def _training() -> tuple[nn.Module, torch.optim.Optimizer, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = Net()
    return (
        model,
        torch.optim.SGD(model.parameters(), lr=1e-2),
        {"x": torch.randn(33, 24), "target": torch.randn(33, 17)},
    )


def _saved(folder: Path, **options: str) -> str:
    """The artefact in ``folder``; its program."""
    model, optimizer, batch = _training()
    shardc.compile_step(model, optimizer, batch, mesh={"data": 1}, target="sm_90", **options).save(folder)
    return (folder / "program.py").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("matmuls", ["auto", "generated"])
def test_it_trains_as_eager_does(matmuls: str, tmp_path: Path) -> None:
    """Kernels with a matmul in them, its bias and gelu, their gradients and the update of the weights."""
    text = _saved(tmp_path / "out", matmuls=matmuls)
    sources = [path.read_text() for path in (tmp_path / "out" / "kernels").glob("*.py")]
    assert any("tl.dot(" in source for source in sources)
    assert matmuls == "auto" or ".mm(" not in text
    check_training(_training, tmp_path / "out")


@pytest.mark.slow
def test_calls_where_the_user_wants_them(tmp_path: Path) -> None:
    _saved(tmp_path / "out", matmuls="extern")
    assert not any("tl.dot(" in path.read_text() for path in (tmp_path / "out" / "kernels").glob("*.py"))


@pytest.mark.slow
def test_explain_says_what_both_would_take(tmp_path: Path) -> None:
    _saved(tmp_path / "out")
    table = explain(tmp_path / "out")
    assert "estimates for sm_90 (989 TFLOP/s in 16 bits, 4.8 TB/s)" in table
    assert "roofline" in table and "bound by" in table and " us " in table
    choices = (
        explain_path(tmp_path / "out")
        .partition("matmuls and attention:")[2]
        .partition("\n\n")[0]
        .splitlines()[1:]
    )
    assert len(choices) == 5
    assert all("as calls" in line and "as kernels" in line and "by the roofline" in line for line in choices)


@pytest.mark.slow
def test_an_edge_that_is_forbidden(tmp_path: Path) -> None:
    """FusionConstraints hold for a GPU's kernels, too."""
    text = _saved(tmp_path / "out", matmuls="generated", forbid_fusion=["aten.addmm+aten.gelu"])
    assert "addmm_gelu" not in text and "addmm" in text
    assert "forbid aten.addmm+aten.gelu" in explain_path(tmp_path / "out")


def test_no_such_choice() -> None:
    model, optimizer, batch = _training()
    with pytest.raises(BadArgument, match="'auto' or 'extern' or 'generated'"):
        shardc.compile_step(model, optimizer, batch, mesh={"data": 1}, target="sm_90", matmuls="cublas")
