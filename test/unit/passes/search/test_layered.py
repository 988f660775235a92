"""The result of a search on few layers, applied to programs with more or fewer of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from shardc.cost.cluster.names import find_cluster
from shardc.passes.search.choose import Found
from shardc.passes.search.fold import NotFolded
from shardc.passes.search.layered import _Item, _places
from shardc.planning.candidates import Candidate
from shardc.planning.price import Priced
from shardc.planning.pricer import Pricer
from shardc.planning.question import Question


def items(text: str) -> list[_Item]:
    """An item for each letter; what is behind a space is another phase."""
    return [
        _Item(str(part), letter, letter) for part, letters in enumerate(text.split()) for letter in letters
    ]


@pytest.mark.parametrize(
    ("few", "others", "expected"),
    [
        ("aXYXYXYXYb", "aXYXYXYXYXYXYb", [0, 1, 2, 3, 4, 3, 4, 3, 4, 3, 4, 7, 8, 9]),
        ("aXYXYXYXYb", "aXYXYb", [0, 1, 2, 7, 8, 9]),
        ("aXYXYXYXYb", "aXYXYXYXYb", list(range(10))),
        ("XXXXaYYYYY", "XXXXaYYYYY", list(range(10))),
        ("aXXXXbYYYYc", "aXXXXXbYYYYYYc", [0, 1, 2, 2, 2, 4, 5, 6, 7, 7, 7, 7, 9, 10]),
        ("aXXXX bXXXXc", "aXXXXX bXXXXXc", [0, 1, 2, 2, 2, 4, 5, 6, 7, 7, 7, 9, 10]),
    ],
)
def test_each_item_has_its_like(few: str, others: str, expected: Sequence[int]) -> None:
    assert _places(items(few), items(others)) == expected


@pytest.mark.parametrize(
    ("few", "others"),
    [("aXYXYXYXYb", "aXYXYXZXYXYb"), ("aXXXXb", "aXXXXXbb"), ("aXXXX b", "aXXXXX"), ("aXYXYXYXYb", "aXb")],
)
def test_other_programs_are_refused(few: str, others: str) -> None:
    with pytest.raises(NotFolded):
        _places(items(few), items(others))


class Block(nn.Module):
    """Layers are larger than buckets of collectives, which pack several smaller ones."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(4096), nn.Linear(4096, 8192), nn.Linear(8192, 4096)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(256, 4096), nn.Linear(4096, 32000)
        self.layers = nn.ModuleList(Block() for _ in range(10))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return torch.logsumexp(self.last(x), 1).mean()


@pytest.fixture(scope="module")
def pricer() -> Pricer:
    with torch.device("meta"):
        model = Net()
        batch = (torch.empty(4096, 256),)
    question = Question("net", model, torch.optim.AdamW(model.parameters()), batch)
    return Pricer(question, cluster=find_cluster("h100-2x2"))


CANDIDATES = [
    Candidate({"data": 4}, "auto"),
    Candidate({"data": 2, "tensor": 2}, "auto", 4),
    Candidate({"data": 4}, "auto", 2, recompute="full"),
    Candidate({"data": 4}, "auto", room=0.05),
    Candidate({"pipe": 2, "data": 2}, "pipeline*auto", 8),
]


@pytest.mark.slow
@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda c: f"{c.text}, {c.room:g} of memory")
def test_few_layers_have_the_price_of_all(candidate: Candidate, pricer: Pricer) -> None:
    few, whole = pricer.price(candidate), pricer.price(candidate, whole=True)
    assert whole.is_whole and not few.is_whole
    assert few.fullest.peak_bytes == whole.fullest.peak_bytes
    assert dict(few.fullest.given) == dict(whole.fullest.given)
    assert few.sent == pytest.approx(whole.sent)
    assert _flops(few) == pytest.approx(_flops(whole))
    times = [priced.on(find_cluster("h100-2x2")).time.seconds for priced in (few, whole)]
    assert times[0] == pytest.approx(times[1], rel=1e-3)
    assert few.searched == whole.searched and few.searched is not None and few.searched.runners_up


@pytest.mark.slow
def test_the_choices_of_equal_layers_are_those_that_were_searched(pricer: Pricer) -> None:
    found = pricer.found(CANDIDATES[1], explain="plan")
    assert isinstance(found, Found) and found.layered is not None
    compiled = pricer.programs.compiled(CANDIDATES[1])
    assert compiled.searched is not None  # the whole program was searched, too
    assert found.solution.seconds == pytest.approx(compiled.searched.seconds, rel=0.05)


def _flops(priced: Priced) -> float:
    return sum(work.flops for work in priced.work.own)
