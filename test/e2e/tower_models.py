"""Models of towers beside each other whose results a joint part reads, as training runs."""

from __future__ import annotations

import torch
import transformers as hf
from models import Batch, Training, sgd
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH = 16


class Towers(nn.Module):
    """Two towers of ``layers`` each; two layers read the results of both."""

    def __init__(self, layers: tuple[int, int] = (4, 4), width: int = WIDTH) -> None:
        super().__init__()
        self.left = nn.ModuleList(nn.Linear(width, width) for _ in range(layers[0]))
        self.right = nn.ModuleList(nn.Linear(width, width) for _ in range(layers[1]))
        self.joint = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 8))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.left:
            x = F.gelu(layer(x))
        for layer in self.right:
            y = F.gelu(layer(y))
        return self.joint(torch.cat([x, y], 1))


class Woven(Towers):
    """The same towers, a layer of each in turn."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for left, right in zip(self.left, self.right, strict=True):
            x, y = F.gelu(left(x)), F.gelu(right(y))
        return self.joint(torch.cat([x, y], 1))


class Tied(nn.Module):
    """Users and items of a recommendation; both towers read one table, and end with one projection."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, WIDTH)
        self.user = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.item = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.project = nn.Linear(WIDTH, WIDTH)
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        u, i = self.table(users).mean(1), self.table(items).mean(1)
        for layer in self.user:
            u = F.gelu(layer(u))
        u = F.normalize(self.project(u), dim=1)
        for layer in self.item:
            i = F.gelu(layer(i))
        i = F.normalize(self.project(i), dim=1)
        return self.score(u * i)


class Three(nn.Module):
    """A text and two images of one kind, which have a tower each."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(32, WIDTH), nn.Embedding(8, WIDTH)
        self.text = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        self.images = nn.ModuleList(
            nn.Sequential(nn.Linear(48, 32), nn.GELU(), nn.Linear(32, WIDTH)) for _ in range(2)
        )
        self.joint = nn.Linear(3 * WIDTH, 8)

    def forward(self, ids: Tensor, first: Tensor, second: Tensor) -> Tensor:
        text = self.text(self.words(ids) + self.places.weight).mean(1)
        images = [
            tower(pixels.flatten(1)) for tower, pixels in zip(self.images, (first, second), strict=True)
        ]
        return self.joint(torch.cat([text, *images], 1))


SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {**SIZES, "vocab_size": 64, "max_position_embeddings": 8, "eos_token_id": 63, "bos_token_id": 62}
VISION = {**SIZES, "image_size": 8, "patch_size": 4}


def siglip() -> nn.Module:
    """SigLIP of transformers, small: a text tower and a vision tower of two layers each."""
    return hf.SiglipModel(hf.SiglipConfig(text_config=TEXT, vision_config=VISION))


def clip() -> nn.Module:
    """CLIP of transformers, as small. It takes the text's result at a position that depends on data."""
    return hf.CLIPModel(hf.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=16))


def distance(output: object, batch: object) -> Tensor:
    """Mean cosine distance of each pair's text and image, which mixes no samples."""
    text, image = output.text_embeds, output.image_embeds  # type: ignore[attr-defined]
    return (1 - (text * image).sum(1)).mean()


def squares(output: Tensor, batch: object) -> Tensor:
    return (output - 1).square().mean()


def rows(width: int = WIDTH) -> Batch:
    return torch.randn(16, width), torch.randn(16, width)


def ids(*shape: int) -> Tensor:
    return torch.randint(0, 32, shape)


TOWERS = {
    "towers": Training(Towers, rows, loss=squares),
    "uneven": Training(lambda: Towers((1, 3)), rows, loss=squares),
    "woven": Training(Woven, rows, loss=squares),
    "tied": Training(Tied, lambda: (ids(16, 4), ids(16, 4)), loss=squares),
    "three": Training(
        Three, lambda: (ids(16, 8), torch.randn(16, 3, 4, 4), torch.randn(16, 3, 4, 4)), loss=squares
    ),
    "siglip": Training(
        siglip, lambda: {"input_ids": ids(16, 8), "pixel_values": torch.randn(16, 3, 8, 8)}, sgd, distance
    ),
}
