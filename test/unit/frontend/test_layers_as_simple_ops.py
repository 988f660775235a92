"""Layers that torch has kernels of their own for on a CPU, traced as ops that sharding rules know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.spec import Capture

pytestmark = pytest.mark.usefixtures("f64")


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.0625)


IDS = torch.tensor([3, 1, 2, 3, 0, 1, 4, 2, 2])


class Bags(nn.Module):
    """An embedding bag whose weights of the samples are learned, too, if there are any."""

    def __init__(
        self, ids: torch.Tensor, offsets: torch.Tensor | None = None, weighted: bool = False, **options: Any
    ) -> None:
        super().__init__()
        self.ids, self.offsets, self.options = ids, offsets, options
        self.rows = nn.Parameter(torch.randn(5, 4))
        self.shares = nn.Parameter(torch.randn(ids.shape)) if weighted else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bags = F.embedding_bag(
            self.ids, self.rows, self.offsets, per_sample_weights=self.shares, **self.options
        )
        return (bags * x).square().sum()


STARTS = torch.tensor([0, 2, 2, 6])  # the second bag is empty
BAGS: dict[str, Callable[[], nn.Module]] = {
    "sum": lambda: Bags(IDS.view(3, 3), mode="sum"),
    "mean": lambda: Bags(IDS.view(3, 3)),
    "max": lambda: Bags(IDS[:6].view(3, 2), mode="max"),
    "weighted": lambda: Bags(IDS.view(3, 3), mode="sum", weighted=True),
    "padded mean": lambda: Bags(IDS.view(3, 3), padding_idx=2),
    "padded max": lambda: Bags(torch.tensor([[2, 2], [1, 2], [3, 0]]), mode="max", padding_idx=-3),
    "offsets": lambda: Bags(IDS, STARTS),
    "offsets with the end": lambda: Bags(IDS, torch.tensor([0, 4, 9]), mode="sum", include_last_offset=True),
}


@pytest.mark.parametrize("name", sorted(BAGS))
def test_embedding_bag(name: str, follows_eager: Callable[..., Capture]) -> None:
    torch.manual_seed(0)
    model = BAGS[name]()
    batches = [(torch.randn(1, 4),) for _ in range(2)]
    capture = follows_eager(model, _sgd, batches, loss=lambda output, _: output)
    assert not any("bag" in str(node.target) for node in capture.graph.graph.nodes)


@pytest.mark.parametrize("options", [{"max_norm": 1.0}, {"mode": "max"}], ids=str)
def test_bags_that_are_left_to_torch(options: dict[str, Any], follows_eager: Callable[..., Capture]) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(1, 4),) for _ in range(2)]
    follows_eager(Bags(IDS, STARTS, **options), _sgd, batches, loss=lambda output, _: output)


class Heads(nn.Module):
    """Attention of two heads; the loss also reads the weights, if they are asked for."""

    def __init__(
        self, how: dict[str, Any] | None = None, cross: int = 0, weights: bool | None = None, **masks: Any
    ) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, **(how or {}))
        self.cross, self.is_causal = cross, masks.pop("is_causal", False)
        for name, mask in masks.items():
            self.register_buffer(name, mask)
        self.masks = list(masks)
        self.weights = {"need_weights": weights is not None, "average_attn_weights": bool(weights)}

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        given = ((x, x, x), (x, y, y), (x, y, z))[self.cross]
        masks = {name: getattr(self, name) for name in self.masks}
        out, weights = self.attention(*given, is_causal=self.is_causal, **masks, **self.weights)
        return out.square().sum() + (0 if weights is None else weights.square().sum())


LATER = nn.Transformer.generate_square_subsequent_mask(3, dtype=torch.float64)
PADDED = torch.tensor([[False, False, True], [False, False, False]])
HEADS: dict[str, Callable[[], nn.Module]] = {
    "batch first": lambda: Heads({"batch_first": True}),
    "positions first": lambda: Heads(),
    "no biases": lambda: Heads({"bias": False}, weights=True),
    "keys of another tensor": lambda: Heads({"batch_first": True}, cross=1),
    "three tensors": lambda: Heads(cross=2, weights=False),
    "own widths": lambda: Heads({"kdim": 4, "vdim": 5}, cross=2),
    "causal": lambda: Heads(attn_mask=LATER, is_causal=True),
    "causal and padded": lambda: Heads(
        {"batch_first": True}, attn_mask=LATER, is_causal=True, key_padding_mask=PADDED
    ),
    "bool mask": lambda: Heads(attn_mask=LATER < 0, weights=True),
    "a mask for each head": lambda: Heads(attn_mask=torch.randn(4, 3, 3, dtype=torch.float64)),
    "padded": lambda: Heads(key_padding_mask=PADDED, weights=False),
    "layer": lambda: EncoderLayer(),
    "left to torch": lambda: Heads({"add_bias_kv": True, "add_zero_attn": True}),
}


class EncoderLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return self.layer(x).pow(3).sum()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", HEADS)
def test_multi_head_attention(name: str, follows_eager: Callable[..., Capture]) -> None:
    torch.manual_seed(0)
    model = HEADS[name]()
    first = name in ("batch first", "keys of another tensor", "causal and padded", "layer")
    x, y = ((2, 3, 4) if first else (3, 2, 4)), 5 if name == "own widths" else 4
    batches = [(torch.randn(x), torch.randn(x), torch.randn(*x[:2], y)) for _ in range(2)]
    follows_eager(model, _sgd, batches, loss=lambda output, _: output)


RECURRENT: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True),
    "projected lstm": lambda: nn.LSTM(4, 6, proj_size=3, bias=False),
    "gru": lambda: nn.GRU(4, 6, batch_first=True),
    "rnn": lambda: nn.RNN(4, 6, nonlinearity="relu"),
    "cell": lambda: nn.GRUCell(4, 6),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", sorted(RECURRENT))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_recurrent_layer(name: str, dtype: torch.dtype, follows_eager: Callable[..., Capture]) -> None:
    """In f32 torch would take an op of the CPU's own library."""
    torch.manual_seed(0)
    model = RECURRENT[name]().to(dtype)
    shape = (3, 4) if name == "cell" else (3, 5, 4)
    batches = [(torch.randn(shape, dtype=dtype),) for _ in range(2)]
    loss = lambda output, batch: (output[0] if isinstance(output, tuple) else output).square().sum()  # noqa: E731
    capture = follows_eager(
        model, _sgd, batches, loss=loss, tolerance=1e-9 if dtype is torch.float64 else 1e-4
    )
    assert not any(
        "rnn" in str(node.target) or "lstm" in str(node.target) for node in capture.graph.graph.nodes
    )


class Normed(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3), dim=dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).square().sum()


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_weight_norm(dim: int, follows_eager: Callable[..., Capture]) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(2, 4, 5),) for _ in range(2)]
    capture = follows_eager(Normed(dim), _sgd, batches, loss=lambda output, _: output)
    assert not any("weight_norm" in str(node.target) for node in capture.graph.graph.nodes)


class Rotated(nn.Module):
    """Rotary positions as complex numbers; the gradient takes conjugates."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.angles = nn.Buffer(torch.randn(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(self.linear(x).unflatten(-1, (2, 2)))
        turned = pairs * torch.polar(torch.ones(2), self.angles)
        return (torch.view_as_real(turned).flatten(-2) * x).sum()


def test_conjugates_are_numbers_and_no_views(follows_eager: Callable[..., Capture]) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(3, 4),) for _ in range(2)]
    capture = follows_eager(Rotated(), _sgd, batches, loss=lambda output, _: output)
    targets = {str(node.target) for node in capture.graph.graph.nodes}
    assert "aten._conj_physical.default" in targets and "aten._conj.default" not in targets


class Masked(nn.Module):
    """Numbers put where a mask is true, of as many dims as the tensor and of fewer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        y[x > 0] = 0.5
        z = y * x
        z[x[:, 0] > 0] = 0
        return z.square().sum()


def test_number_put_where_a_mask_is_true(follows_eager: Callable[..., Capture]) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(5, 4),) for _ in range(2)]
    capture = follows_eager(Masked(), _sgd, batches, loss=lambda output, _: output)
    assert not any("index_put" in str(node.target) for node in capture.graph.graph.nodes)


def test_complex_dtypes_keep_their_number(follows_eager: Callable[..., Capture]) -> None:
    """``complex64`` is 9 in the torch dialect, as it is in c10."""
    linear = nn.Linear(4, 4, dtype=torch.float32)
    batches = [(torch.randn(3, 4, dtype=torch.float32),)]
    loss = lambda output, _: output.to(torch.complex64).abs().sum()  # noqa: E731
    capture = follows_eager(linear, _sgd, batches, loss=loss, tolerance=1e-4)
    assert "torch.constant.int 9\n" in str(capture.module)


class Spd(nn.Module):
    """``function`` of positive definite matrices, a batch of them, and of vectors or matrices beside them."""

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        return self.function(h[:, :, None] * h[:, None, :] + 4 * torch.eye(4), x).square().mean()


ALGEBRA: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cholesky": lambda a, x: torch.linalg.cholesky(a),
    "cholesky upper": lambda a, x: torch.linalg.cholesky(a, upper=True),
    "inv": lambda a, x: torch.linalg.inv(a) + a.inverse() + torch.inverse(a),
    "solve vectors": torch.linalg.solve,
    "solve matrices": lambda a, x: torch.linalg.solve(a, x[:, :, None]),
    "solve from the right": lambda a, x: torch.linalg.solve(a, x[:, None, :], left=False),
}


@pytest.mark.parametrize("name", sorted(ALGEBRA))
def test_linear_algebra(name: str, follows_eager: Callable[..., Capture]) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(3, 4),) for _ in range(2)]
    follows_eager(Spd(ALGEBRA[name]), _sgd, batches, loss=lambda out, _: out)


def test_a_singular_matrix_makes_no_numbers(run_step: Callable[..., torch.Tensor]) -> None:
    model, batch = nn.Linear(2, 4), (torch.zeros(3, 2),)
    optimizer = _sgd(model)

    def inverted(out: torch.Tensor, _: object) -> torch.Tensor:
        return torch.linalg.inv((out * 0).view(3, 2, 2)).sum()

    assert run_step(capture_step(model, optimizer, batch, loss=inverted), optimizer, batch, 0).isnan()


@pytest.mark.parametrize("tracked", [True, False])
def test_batch_norm_that_averages_all_batches(tracked: bool, follows_eager: Callable[..., Capture]) -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4, momentum=None, track_running_stats=tracked)
    model = nn.Sequential(nn.Linear(4, 4), norm, nn.Flatten(0))
    batches = [(torch.randn(6, 4),) for _ in range(3)]
    follows_eager(model, _sgd, batches, loss=lambda out, _: out.pow(3).mean())
