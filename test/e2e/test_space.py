"""A convolutional network with images split along rows and columns: ranks exchange only halos.

Two steps, gradients included, are those of one device, in f64 and as compiled; nothing is gathered, and a
device computes its share.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import shardc
from shardc.report.traffic import transfers

ROWS = {"0": [None, None, "rows"]}
CUTS = {
    "rows 2": (ROWS, {"rows": 2}),
    "rows 4": (ROWS, {"rows": 4}),
    "data x rows": ({"0": ["data", None, "rows"]}, {"data": 2, "rows": 2}),
    "rows x columns": ({"0": [None, None, "rows", "columns"]}, {"rows": 2, "columns": 2}),
    "one dim over two axes": ({"0": [None, None, ["rows", "more"]]}, {"rows": 2, "more": 2}),
}


class Network(nn.Module):
    """Every kind of window, strides, dilation and groups, and images that grow again."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.down = nn.Sequential(
            nn.Conv2d(8, 16, 3, 2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.skip = nn.Conv2d(16, 16, 1, 2)  # leaves pixels out
        self.middle = nn.Conv2d(16, 16, 3, padding=2, dilation=2, groups=2)
        self.up = nn.ConvTranspose2d(16, 8, 4, 2, padding=1)
        self.last = nn.Conv2d(8, 4, 5, padding=2, bias=False)
        self.head = nn.Linear(4, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.down(self.first(image))
        x = F.gelu(self.middle(self.pool(x)) + self.skip(x))
        x = F.interpolate(self.up(x), scale_factor=2.0).roll(3, 2).flip(3)
        x = F.avg_pool2d(self.last(x), 2)
        return self.head(x.mean((2, 3)))


class Framed(nn.Module):
    """Every kind of pad, and parts that are cut out, of sizes that devices do not divide."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        x = self.first(image)
        for mode in ("constant", "reflect", "replicate", "circular"):
            framed = F.gelu(F.pad(x, (2, 1, 1, 1), mode))
            x = F.pad(framed, (-2, -1, -1, -1)) + F.pad(x, (0, 0, 3, -3))
        # A pad of a part is gathered: its rows do not divide.
        inside = F.pad(x[:, :, 1:-2], (0, 0, 0, 3), value=0.5)
        return self.last(inside + x)[:, :, ::2].mean((2, 3))


class Resampled(nn.Module):
    """Images that change size by linear and cubic weights, as channels and as columns, and by maxima."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 4, 3, padding=1)
        self.mixed = nn.Linear(36, 8)

    def forward(self, image: Tensor) -> Tensor:
        x = self.first(image)
        large = F.interpolate(x, scale_factor=2.0, mode="bilinear")
        x = x + F.interpolate(F.gelu(large), scale_factor=0.5, mode="bicubic")
        x = F.pixel_shuffle(F.pixel_unshuffle(x, 2).square(), 2)
        columns = F.unfold(self.last(x), 3, padding=1, stride=2)
        seen = F.adaptive_max_pool2d(F.interpolate(x, scale_factor=1.5, mode="bilinear"), 8)
        return self.mixed(columns.abs().mean(2)) + seen.mean((2, 3))


class Around(nn.Module):
    """Convolutions behind pads: less before the image than behind it, and its other end."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.first = nn.Conv2d(3, 8, 3, 2)
        self.middle = nn.Conv2d(8, 8, 3, groups=8)
        self.last = nn.Conv2d(8, 16, 5, 2, bias=False)

    def forward(self, image: Tensor) -> Tensor:
        x = F.gelu(self.first(F.pad(image, (0, 1, 0, 1), self.mode)))
        x = x + self.middle(F.pad(x, (1, 1, 1, 1), self.mode))
        return self.last(F.pad(x, (1, 2, 1, 2), self.mode)).mean((2, 3))


class Pooled(nn.Module):
    """Maxima of padded images, alone and beside a convolution of the same one, as in BiT and HGNetV2."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.near = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 2)
        self.last = nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        framed = F.pad(self.first(image), (0, 1, 0, 1))
        x = torch.cat([F.max_pool2d(framed, 2, 1, ceil_mode=True), self.near(framed)], 1)
        return self.last(F.max_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 2)).mean((2, 3))


class Tokens(nn.Module):
    """Linear layers on pixels behind convolutions, and in windows of them, as in ConvNeXt and Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 2, 2)
        self.near = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.grow, self.shrink, self.norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8)
        self.down = nn.Conv2d(8, 8, 2, 2)
        self.mixed = nn.Linear(8, 8)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image)
        x = x + self.shrink(F.gelu(self.grow(self.norm(self.near(x).permute(0, 2, 3, 1))))).permute(
            0, 3, 1, 2
        )
        x = self.down(x).permute(0, 2, 3, 1)
        n, height, width, channels = x.shape
        windows = x.reshape(n, height // 2, 2, width // 2, 2, channels).transpose(2, 3)
        windows = self.mixed(windows.reshape(-1, 4, channels))
        scores = torch.softmax(windows @ windows.transpose(1, 2), -1) @ windows
        x = scores.view(n, height // 2, width // 2, 2, 2, channels).transpose(2, 3)
        return x.reshape(n, height, width, channels).mean((1, 2))


def loss(output: Tensor, batch: tuple[Tensor]) -> Tensor:
    return (output - torch.arange(output.shape[1])).square().mean()


@pytest.mark.parametrize("cut", ["rows 4", "data x rows", "rows x columns"])
@pytest.mark.parametrize("kind", [Framed, Resampled])
def test_images_of_other_sizes(kind: type[nn.Module], cut: str) -> None:
    """Padded, cut out of others, resampled: by exchanges, and each device computes its share."""
    plan, mesh = CUTS[cut]
    torch.manual_seed(0)
    model = kind()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    image = torch.randn(4, 3, 32, 32)
    step = shardc.compile_step(model, optimizer, (image,), loss=loss, mesh=mesh, plan=plan)
    proof = step.check()
    assert proof.passed, proof.render()
    assert "exchange" in {t.kind for t in transfers(step.compiled.rank_module)}
    assert step.compiled.work is not None
    assert step.compiled.work.share < 1.05 / 4


def circular() -> nn.Module:
    return Around("circular")


def uneven() -> nn.Module:
    return Around("constant")


@pytest.mark.parametrize("cut", ["rows 4", "data x rows"])
@pytest.mark.parametrize("kind", [Tokens, Pooled, uneven, circular])
def test_pixels_stay_cut(kind: Callable[[], nn.Module], cut: str) -> None:
    """Where rows are merged with batches and columns, and behind pads: nothing is gathered."""
    plan, mesh = CUTS[cut]
    torch.manual_seed(0)
    model = kind()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    image = torch.randn(4, 3, 32, 32)
    step = shardc.compile_step(model, optimizer, (image,), loss=loss, mesh=mesh, plan=plan)
    proof = step.check()
    assert proof.passed, proof.render()
    assert {t.kind for t in transfers(step.compiled.rank_module)} == {"exchange", "all_reduce"}
    assert step.compiled.work is not None
    assert step.compiled.work.share < 1.02 / 4


@pytest.mark.parametrize("cut", CUTS)
def test_a_network_whose_pixels_are_cut(cut: str) -> None:
    plan, mesh = CUTS[cut]
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = shardc.compile_step(
        model, optimizer, (torch.randn(4, 3, 32, 32),), loss=loss, mesh=mesh, plan=plan
    )
    proof = step.check()
    assert proof.passed, proof.render()
    assert {t.kind for t in transfers(step.compiled.rank_module)} == {"exchange", "all_reduce"}
    assert step.compiled.work is not None
    devices = 2 if cut == "rows 2" else 4
    # A transposed convolution computes its halo's output, too; here blocks have two rows of what it reads.
    assert step.compiled.work.share < 1.05 / devices


class Partly(nn.Module):
    """Changes the first ``turned`` of eight columns. With 8 none are left, as of a whole rotary embedding."""

    def __init__(self, turned: int) -> None:
        super().__init__()
        self.turned, self.layer = turned, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        made = self.layer(x)
        return torch.cat([torch.sin(made[..., : self.turned]), made[..., self.turned :]], dim=-1)


@pytest.mark.parametrize("turned", [0, 4, 8])
def test_slices_of_no_columns(turned: int) -> None:
    torch.manual_seed(0)
    model = Partly(turned)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = shardc.compile_step(
        model,
        optimizer,
        (torch.randn(4, 8),),
        loss=loss,
        mesh={"tensor": 2},
        plan={"layer.weight": ["tensor"]},
    )
    assert step.check().passed
