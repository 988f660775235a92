"""Accelerate with shardc: accelerate loads data and tracks metrics in TensorBoard, shardc compiles the step.

torchrun --nproc-per-node 2 examples/accelerate_tensorboard.py runs
"""

import json
import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import shardc

BATCH = 16


def build():
    """Return the model, its optimizer, and the rows to train on; they are the same on all ranks."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = TensorDataset(torch.randn(64, 8), torch.arange(64) % 4)
    return model, optimizer, rows


def loss_of(output, batch):
    """Return the mean cross entropy."""
    return nn.functional.cross_entropy(output, batch["y"])


class Net(nn.Module):
    """Net that takes a batch's fields by name."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, x, y):
        return self.layers(x)


def main(folder: str) -> None:
    """Train two epochs; the first rank also writes the losses to the folder of TensorBoard's events."""
    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=folder)
    ranks = accelerator.num_processes
    layers, optimizer, rows = build()
    # accelerate gives each rank its own part of each batch: BATCH // ranks rows.
    loader = accelerator.prepare(DataLoader(rows, batch_size=BATCH // ranks))
    example = {"x": torch.zeros(BATCH, 8), "y": torch.zeros(BATCH, dtype=torch.long)}
    step = shardc.compile_step(
        Net(layers), optimizer, example, loss=loss_of, mesh={"data": ranks}, plan="zero2"
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
    accelerator.init_trackers("train", config={"batch": BATCH, "ranks": ranks})
    losses = []
    for _ in range(2):
        for x, y in loader:
            started, lr = time.perf_counter(), scheduler.get_last_lr()[0]
            losses.append(step.local({"x": x, "y": y}).item())
            seconds = time.perf_counter() - started
            scheduler.step()
            accelerator.log({"loss": losses[-1], "lr": lr, "seconds": seconds}, step=len(losses))
    accelerator.end_training()
    if accelerator.is_main_process:
        Path(folder, "losses.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main(sys.argv[1])
