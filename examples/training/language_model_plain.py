"""Train a small language model with warm-up, clipping, evaluation and checkpoints.

python examples/training/language_model_plain.py --steps 40 --checkpoint /tmp/lm [--resume]
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

VOCAB, LENGTH, WIDTH = 64, 16, 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x))


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places.weight
        return self.head(self.norm(self.blocks(x)))


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def texts(rows: int, seed: int) -> TensorDataset:
    """Made text: each token is the last one times 5, plus a number of the row's own, or noise."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCAB, (rows, LENGTH + 1), generator=random)
    for i in range(LENGTH):
        is_noise = torch.rand(rows, generator=random) < 0.1
        tokens[:, i + 1] = torch.where(is_noise, tokens[:, i + 1], (5 * tokens[:, i] + 3) % VOCAB)
    return TensorDataset(tokens[:, :-1], tokens[:, 1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--checkpoint", default="checkpoint-lm")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    model = LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    scheduler = LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / 10))
    train, held_out = texts(72, seed=1), texts(16, seed=2)
    done = 0
    if args.resume:
        saved = torch.load(f"{args.checkpoint}.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
        done = saved["done"]

    while done < args.steps:
        order = torch.Generator().manual_seed(done)
        for x, y in DataLoader(train, batch_size=16, shuffle=True, generator=order):  # the last has 8 rows
            loss = loss_of(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            done += 1
            print(f"step {done} loss {loss.item():.6f}")
        model.eval()
        with torch.no_grad():
            losses = [loss_of(model(x), y).item() for x, y in DataLoader(held_out, batch_size=8)]
        model.train()
        print(f"step {done} held-out loss {sum(losses) / len(losses):.6f}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "scheduler": scheduler.state_dict(), "done": done}, f"{args.checkpoint}.pt")


if __name__ == "__main__":
    main()
