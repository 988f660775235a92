"""Features of modules and training loops, traced, against eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from shardc.diagnostics.frontend import UnsupportedDtype
from shardc.frontend.step.capture import capture_step
from shardc.frontend.step.spec import Capture

Follow = Callable[..., Capture]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def cross_entropy(output: torch.Tensor, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(output, batch[1])


class Classifier(nn.Module):
    """Takes (x, y) and ignores y, as a loop that hands a whole batch to the model needs."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(11, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.mix(self.embed(x))))


def images(count: int = 3) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))) for _ in range(count)]


@pytest.mark.usefixtures("f64")
def test_convolution_with_batch_norm(follows_eager: Follow) -> None:
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, bias=False),
        nn.BatchNorm2d(6, track_running_stats=False),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.BatchNorm1d(6),
        nn.Linear(6, 5),
    )
    capture = follows_eager(Classifier(body), sgd, images(), loss=cross_entropy)
    assert [s.name for s in capture.with_role("buffer")][:2] == ["body.1.running_mean", "body.1.running_var"]


@pytest.mark.usefixtures("f64")
def test_batch_norm_in_eval_mode(follows_eager: Follow) -> None:
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4).eval(), nn.Flatten(), nn.Linear(144, 5))
    body[1].eval()
    follows_eager(Classifier(body), sgd, images(), loss=cross_entropy)


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("f64")
@pytest.mark.parametrize("name", ["group", "instance", "layer", "rms"])
def test_other_norms(name: str, follows_eager: Follow) -> None:
    norms = {
        "group": lambda: nn.GroupNorm(2, 4),
        "instance": lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        "layer": lambda: nn.LayerNorm([4, 6, 6]),
        "rms": lambda: nn.RMSNorm([6, 6]),
    }
    body = nn.Sequential(nn.Conv2d(3, 4, 3), norms[name](), nn.Flatten(), nn.Linear(144, 5))
    follows_eager(Classifier(body), sgd, images(), loss=cross_entropy)


@pytest.mark.usefixtures("f64")
def test_tied_weights_stand_once(follows_eager: Follow) -> None:
    torch.manual_seed(0)
    batches = [(torch.randint(0, 11, (4,)), torch.randint(0, 11, (4,))) for _ in range(3)]
    capture = follows_eager(Tied(), sgd, batches, loss=cross_entropy)
    assert [s.name for s in capture.with_role("param")] == ["embed.weight", "mix.weight", "mix.bias"]
    assert capture.tied == {"head.weight": "embed.weight"}


@pytest.mark.usefixtures("f64")
@pytest.mark.filterwarnings(
    "ignore:Detected call of `lr_scheduler.step"
)  # the step is run, but not by the optimizer
def test_two_groups_and_schedulers(follows_eager: Follow) -> None:
    def groups(model: nn.Module) -> torch.optim.Optimizer:
        weights = [p for p in model.parameters() if p.dim() > 1]
        biases = [p for p in model.parameters() if p.dim() == 1]
        return torch.optim.AdamW(
            [{"params": weights}, {"params": biases, "lr": 0.01, "weight_decay": 0.0}], lr=0.1
        )

    body = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.Tanh(), nn.Linear(6, 5))
    capture = follows_eager(
        Classifier(body),
        groups,
        images(),
        loss=cross_entropy,
        scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, 1, gamma=0.1),
    )
    assert {"group0.lr", "group1.lr", "group0.weight_decay"} <= {h.name for h in capture.hyperparameters}
    assert capture.baked[1, "weight_decay"] == 0.0


@pytest.mark.usefixtures("f64")
@pytest.mark.filterwarnings(
    "ignore:Detected call of `lr_scheduler.step"
)  # the step is run, but not by the optimizer
def test_scheduler_of_momentum_and_betas(follows_eager: Follow) -> None:
    def cycle(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)

    body = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    follows_eager(Classifier(body), sgd, images(4), loss=cross_entropy, scheduler=cycle)
    body = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    follows_eager(
        Classifier(body),
        lambda m: torch.optim.Adam(m.parameters()),
        images(4),
        loss=cross_entropy,
        scheduler=cycle,
    )


@pytest.mark.usefixtures("f64")
def test_state_of_a_stepped_optimizer_is_taken_over() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    capture = capture_step(model, optimizer, torch.ones(1, 3), loss=lambda o, b: o.sum())
    assert capture.initial_values()["opt_state", "weight/momentum_buffer"].eq(1).all()
    assert all(item.first_step is None for item in capture.hyperparameters)


@pytest.mark.usefixtures("f64")
def test_frozen_unused_and_foreign_parameters(follows_eager: Follow) -> None:
    class Partial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 5), nn.Linear(4, 4)
            self.frozen.requires_grad_(False)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.used(self.frozen(x))

    batches = [(torch.randn(3, 4), torch.randint(0, 5, (3,))) for _ in range(3)]
    capture = follows_eager(
        Partial(), lambda m: torch.optim.Adam(m.parameters()), batches, loss=cross_entropy
    )
    assert {s.name.split(".")[0] for s in capture.with_role("opt_state")} == {"used"}
    assert set(capture.gradients) == {"used.weight", "used.bias"}


def test_bf16_parameters_and_autocast(follows_eager: Follow) -> None:
    body = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.LayerNorm(6), nn.Linear(6, 5)).bfloat16()
    batches = [(x.bfloat16(), y) for x, y in images()]
    follows_eager(Classifier(body), sgd, batches, loss=cross_entropy, tolerance=2e-2)

    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.LayerNorm(6), nn.Linear(6, 5))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.body(x)

    capture = follows_eager(Cast(), sgd, images(), loss=cross_entropy, tolerance=2e-2)
    assert "torch.bfloat16" in capture.graph.code
    assert {s.dtype for s in capture.with_role("param")} == {torch.float32}
    model = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)))
    capture = capture_step(model, sgd(model), images()[0], loss=cross_entropy, autocast=torch.bfloat16)
    assert "torch.bfloat16" in capture.graph.code


@pytest.mark.usefixtures("f64")
def test_nested_batches_masks_and_constants(follows_eager: Follow) -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.table = torch.arange(4.0)

        def forward(self, x: torch.Tensor, extra: dict[str, Any], flag: bool, none: None) -> torch.Tensor:
            assert flag and none is None
            masked = self.linear(x).masked_fill(extra["mask"], 0.0) * self.table * extra["scale"]
            return (masked[:, -2:] ** 2).sum() + torch.tensor(2.5)

    def batch() -> tuple[Any, ...]:
        return torch.randn(3, 4), {"mask": torch.rand(3, 4) > 0.5, "scale": 2.0}, True, None

    capture = follows_eager(Nested(), sgd, [batch() for _ in range(3)], loss=lambda out, batch: out)
    assert [s.name for s in capture.with_role("input")] == ["0", "1.mask"]
    assert [(s.name, s.shape) for s in capture.with_role("constant")] == [("constant0", (4,))]


@pytest.mark.usefixtures("f64")
@pytest.mark.parametrize(
    "loss",
    [
        F.mse_loss,
        F.l1_loss,
        F.smooth_l1_loss,
        F.huber_loss,
        F.binary_cross_entropy_with_logits,
        F.soft_margin_loss,
    ],
)
def test_losses(loss: Callable[..., torch.Tensor], follows_eager: Follow) -> None:
    batches = [(torch.randn(3, 4), torch.rand(3, 5).round()) for _ in range(3)]
    follows_eager(Classifier(nn.Linear(4, 5)), sgd, batches, loss=lambda out, batch: loss(out, batch[1]))


@pytest.mark.usefixtures("f64")
def test_ops_with_decompositions(follows_eager: Follow) -> None:
    def forward(out: torch.Tensor, batch: Any) -> torch.Tensor:
        a, b = out.chunk(2, dim=-1)
        c, d, e = out[:, :3].unbind(-1)
        stacked = torch.stack([c, d, e], -1)
        total = (
            out.var(-1).mean() + out.std() + out.norm(1, dim=0).sum() + out.norm() + out.norm(3, dim=-1).sum()
        )
        total = total + torch.var_mean(out, 0, correction=0)[1].sum() + out.norm(float("inf"))
        filled = out.clone()
        filled[:, 1] = a[:, 0]
        filled[1:, 2:4] = 0.5
        outer = torch.baddbmm(out[:, :3, None], a[:, :, None], b[:, None, :], beta=2, alpha=3)
        dots = (
            torch.dot(out[0], out[1]) + torch.mv(out, out[0]).sum() + (1 - out).sum() + out.squeeze(0).sum()
        )
        strided = out[:, ::2].sum() + out[:, -1].sum() + out.flip(0)[0].sum()
        return total + (stacked * filled[:, :3]).sum() + outer.sum() + dots + strided

    batches = [(torch.randn(3, 4), torch.zeros(1)) for _ in range(3)]
    follows_eager(
        Classifier(nn.Linear(4, 6)), lambda m: torch.optim.SGD(m.parameters(), lr=1e-3), batches, loss=forward
    )


@pytest.mark.slow
@pytest.mark.usefixtures("f64")
def test_recurrent_and_transformer_layers(follows_eager: Follow) -> None:
    torch.manual_seed(0)

    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(4, 8, batch_first=True)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
            self.head = nn.Linear(8, 5)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.head(self.layer(self.rnn(x)[0])[:, -1])

    batches = [(torch.randn(3, 6, 4), torch.randint(0, 5, (3,))) for _ in range(3)]
    capture = follows_eager(Sequence(), sgd, batches, loss=cross_entropy)
    assert "shardc.attention" in capture.graph.code


@pytest.mark.usefixtures("f64")
def test_activation_checkpointing_is_traced(follows_eager: Follow) -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 5)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            hidden = checkpoint(self.attend, x, use_reentrant=False)
            return self.two(hidden)

        def attend(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.tanh(self.one(x))[None, None]
            return F.scaled_dot_product_attention(hidden, hidden, hidden)[0, 0].tanh()

    batches = [(torch.randn(3, 4), torch.randint(0, 5, (3,))) for _ in range(3)]
    capture = follows_eager(Checkpointed(), sgd, batches, loss=cross_entropy)
    attention = [n for n in capture.graph.graph.nodes if "shardc.attention.default" in str(n.target)]
    assert [n.meta["shardc_phase"] for n in attention] == ["forward", "backward"]


def test_autocast_for_another_device_is_traced_too() -> None:
    class Cuda(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", torch.bfloat16):
                return super().forward(x).float().sum()

    model = Cuda(3, 2)
    capture = capture_step(model, sgd(model), (torch.ones(4, 3),))
    assert "torch.bfloat16" in capture.graph.code
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.usefixtures("f64")
def test_module_that_changes_itself_is_put_back(follows_eager: Follow) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 5)
            self.register_buffer("mean", torch.zeros(5))

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            out = self.linear(x)
            self.last = out
            self.mean = self.mean * 0.9 + out.detach().mean(0) * 0.1
            return out - self.mean

    model = Counting()
    mean = model.mean
    batches = [(torch.randn(3, 4), torch.randint(0, 5, (3,))) for _ in range(3)]
    follows_eager(model, sgd, batches, loss=cross_entropy)
    assert model.mean is mean and not hasattr(model, "last")


def test_unsupported_dtype_is_named() -> None:
    model = nn.Linear(3, 2)
    batch = (torch.ones(4, 3), torch.ones(4, dtype=torch.uint16))
    with pytest.raises(UnsupportedDtype, match=r"1 has dtype torch.uint16"):
        capture_step(Classifier(model), sgd(model), batch, loss=lambda out, _: out.sum())
