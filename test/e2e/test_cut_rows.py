"""Steps along a sharded dim: results of eager training, and no gathered activation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from models import Training
from torch import Tensor, nn
from training import capture, check_equal, train_eagerly

from shardc.report.traffic import transfers

SHAPE = (4, 8, 16, 16)
Body = Callable[["Net", Tensor], Tensor]


class Net(nn.Module):
    """``body`` of an image that a parameter scales; ``after`` weighs what it makes."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body
        self.scale, self.after = nn.Parameter(torch.randn(SHAPE)), nn.Parameter(torch.randn(SHAPE))
        self.layer, self.group = nn.LayerNorm(16), nn.GroupNorm(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x * self.scale)


def _layer_norm(net: Net, x: Tensor) -> Tensor:
    return net.layer(x.transpose(2, 3)) * net.after.transpose(2, 3)


def _logcumsumexp(net: Net, x: Tensor) -> Tensor:
    return x.logcumsumexp(2) * net.after


def _extrema(net: Net, x: Tensor) -> Tensor:
    return x.max(2).values + x.min(2).values * x.argmax(2) + net.after.sum(2)


@dataclass(frozen=True)
class Case:
    body: Body
    kinds: frozenset[str]


REDUCED, SCANNED, MOVED = (
    frozenset({"all_reduce"}),
    frozenset({"all_reduce", "all_gather", "exchange"}),
    frozenset({"all_reduce", "all_to_all"}),
)
CASES = {
    "logsumexp": Case(lambda net, x: (net.after * x).logsumexp(2), REDUCED),
    "softmax": Case(lambda net, x: x.softmax(2) * net.after, REDUCED),
    "layer norm": Case(_layer_norm, REDUCED),
    "group norm": Case(lambda net, x: net.group(x) * net.after, REDUCED),
    "one after another": Case(lambda net, x: (_layer_norm(net, x)).logsumexp(3), REDUCED),
    "extrema": Case(_extrema, REDUCED),
    "top-k": Case(lambda net, x: x.topk(3, 2).values * net.after.sum(), MOVED),
    "cumsum": Case(lambda net, x: x.cumsum(2) * net.after, SCANNED),
    "logcumsumexp": Case(_logcumsumexp, SCANNED),
    "sort": Case(lambda net, x: x.sort(2).values * net.after, MOVED),
    "fft": Case(lambda net, x: torch.fft.fft(x, dim=2).real * net.after, MOVED),
}
MESHES = {"space": ({"space": 4}, []), "data x space": ({"data": 2, "space": 4}, ["data"])}
SLOW = ("softmax", "cumsum", "top-k", "fft")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in CASES])
def test_equals_eager_training(name: str, mesh: str) -> None:
    case, (sizes, batch) = CASES[name], MESHES[mesh]
    image = [batch, [], ["space"], []]
    training = Training(
        lambda: Net(case.body), lambda: (torch.randn(SHAPE),), loss=lambda out, batch: out.square().mean()
    )
    step = capture(training)
    compiled = step.compile(sizes, {"scale": image, "after": image, "0": image})
    sent = transfers(compiled.rank_module)
    over_space = [t for t in sent if "space" in t.axes]
    assert {t.kind for t in over_space} <= case.kinds
    a_row = 4 * 8 * 16
    assert all(t.kind == "all_to_all" or t.type.numel <= a_row for t in over_space)
    check_equal(step, compiled, training, train_eagerly(training))
