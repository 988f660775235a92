"""An index of no expert stops the step at the user's line, under any plan."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from models import Training, sgd
from torch import Tensor, nn
from training import Captured, capture, check_equal, train_eagerly

import shardc
from shardc.runtime.errors import NoSuchExpert

ROWS, EXPERTS, WIDTH, INNER = 24, 4, 6, 10


class Chosen(nn.Module):
    """An expert for each row, as the batch says."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, INNER) / 4)
        self.down = nn.Parameter(torch.randn(EXPERTS, INNER, WIDTH) / 4)

    def forward(self, x: Tensor, kinds: Tensor) -> Tensor:
        hidden = torch.bmm(x.unsqueeze(1), self.up[kinds]).relu()
        return torch.bmm(hidden, self.down[kinds]).squeeze(1).square().sum()


def line_of(text: str) -> str:
    """``file.py:12`` of the model's line with ``text``."""
    lines, first = inspect.getsourcelines(Chosen)
    number = next(n for n, line in enumerate(lines, first) if text in line)
    return f"{Path(__file__).name}:{number}"


def _batch(rows: int = ROWS, index: int | None = None) -> tuple[Tensor, Tensor]:
    kinds = torch.randint(0, EXPERTS, (rows,))
    if index is not None:
        kinds[rows - 1] = index
    return torch.randn(rows, WIDTH), kinds


def _training(rows: int = ROWS, index: int | None = None) -> Training:
    return Training(Chosen, lambda: _batch(rows, index), sgd, lambda output, _: output)


def _captured() -> Captured:
    return capture(_training())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("index", [-1, EXPERTS])
@pytest.mark.parametrize("plan", ["data", "expert", "tensor"])
def test_ranks_of_the_oracle(plan: str, index: int) -> None:
    step = _captured()
    compiled = step.compile({plan: 2}, plan)
    wanted = train_eagerly(_training(), 1)
    with pytest.raises(NoSuchExpert) as failed:
        check_equal(step, compiled, _training(index=index), wanted)
    assert f"a row chooses expert {index}, but there are {EXPERTS}" in failed.value.what
    assert failed.value.where is not None and failed.value.where.endswith(line_of("hidden = "))


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("index", [-1, EXPERTS])
def test_a_step_of_one_process(fuse: bool, index: int) -> None:
    model = Chosen()
    options = {"mesh": {"data": 1}, "loss": lambda output, _: output, "fuse": fuse}
    step = shardc.compile_step(model, sgd(model), _batch(), **options)
    step(_batch())
    before = [p.clone() for p in step.parameters()]
    with pytest.raises(NoSuchExpert, match=f"expert {index}, but there are {EXPERTS}") as failed:
        step(_batch(index=index))
    assert failed.value.where == line_of("hidden = ")
    assert all(torch.equal(a, b) for a, b in zip(before, step.parameters(), strict=True))


def test_padding_chooses_an_expert() -> None:
    """Of nine rows on two devices the tenth is padding: it holds zeros, whose expert would be none here."""

    class Shifted(Chosen):
        def forward(self, x: Tensor, kinds: Tensor) -> Tensor:
            return super().forward(x, kinds - 1)

    batch = lambda: (torch.randn(9, WIDTH), torch.randint(1, EXPERTS + 1, (9,)))  # noqa: E731
    training = Training(Shifted, batch, sgd, lambda output, _: output)
    step = capture(training)
    check_equal(step, step.compile({"data": 2}, "data"), training, train_eagerly(training, 2))
