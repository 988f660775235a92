"""Checkpoints: training that is interrupted and resumed has the same losses as uninterrupted training.

python examples/checkpoints.py
torchrun --nproc-per-node 2 examples/checkpoints.py
"""

import os
import tempfile

import torch
from torch import nn

import shardc


def compiled():
    """Return a step on all processes, and its batch. A checkpoint of two processes loads on one, too."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    batch = (torch.randn(8, 16),)
    mesh = {"data": int(os.environ.get("WORLD_SIZE", "1"))}
    step = shardc.compile_step(
        model,
        optimizer,
        batch,
        loss=lambda out, b: nn.functional.mse_loss(out, b[0]),
        mesh=mesh,
        plan="zero3",
    )
    return step, batch


def shared_folder(step):
    """Return a new folder, the same on all ranks."""
    names = [tempfile.mkdtemp() if step.rank == 0 else ""]
    if torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(names)
    return names[0] + "/checkpoint"


def main():
    """Compare ten steps with five steps, a checkpoint, and five more steps."""
    step, batch = compiled()
    whole = [float(step(batch)) for _ in range(10)]
    first, _ = compiled()
    losses = [float(first(batch)) for _ in range(5)]
    folder = shared_folder(first)
    first.save_checkpoint(folder)
    second, _ = compiled()
    second.load_checkpoint(folder)
    losses += [float(second(batch)) for _ in range(5)]
    if step.rank == 0:
        for number, loss in enumerate(losses):
            print(f"step {number} loss {loss:.4f}")
        print("proved" if losses == whole else f"without a stop: {whole}")


if __name__ == "__main__":
    main()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
