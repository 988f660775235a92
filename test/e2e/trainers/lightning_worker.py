"""Trains a small net by Lightning, plain or by ShardcStrategy, and writes its losses and its weights.

lightning_worker.py WRITTEN OPTIONS TRAINER: JSON of options of ShardcStrategy (or null), and of L.Trainer.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import lightning as L
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        self.losses: list[float] = []
        self.validated: list[float] = []
        self.sums: list[float] = []

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        output = self(x)
        loss = functional.cross_entropy(output, y)
        self.log("train_loss", loss, on_epoch=True)
        self.log("train_accuracy", (output.argmax(-1) == y).float().mean(), on_epoch=True)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"].item())

    def validation_step(self, batch, batch_idx):
        x, y = batch
        output = self(x)
        self.log("validation_loss", functional.cross_entropy(output, y))
        self.log("validation_accuracy", (self.layers(x).argmax(-1) == y).float().mean())
        self.sums.append(output.double().sum().item())

    def on_validation_epoch_end(self):
        for name in ("validation_loss", "validation_accuracy"):
            self.validated.append(self.trainer.callback_metrics[name].item())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


def main(written: str, options: str, settings: str) -> None:
    L.seed_everything(0)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(1)
    rows = TensorDataset(torch.randn(48, 8, generator=generator), torch.arange(48) % 4)
    loader, held = DataLoader(rows, batch_size=8, shuffle=True), DataLoader(rows, batch_size=16)
    more = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "max_epochs": 3}
    if (given := json.loads(options)) is not None:
        from shardc.integrations import ShardcStrategy

        more |= {"strategy": ShardcStrategy(**given), "devices": int(os.environ["WORLD_SIZE"])}
    module, name = Net(), Path(written).stem
    kept = ModelCheckpoint(f"kept-{name}", filename="{epoch}", save_top_k=-1)
    wanted = json.loads(settings)
    resumed = wanted.pop("resume", None)
    trainer = L.Trainer(callbacks=[kept], enable_model_summary=False, **{**more, **wanted})
    trainer.fit(module, loader, held, ckpt_path=resumed)
    last = Path(kept.best_model_path).parent / f"epoch={trainer.current_epoch - 1}.ckpt"
    if trainer.is_global_zero:
        state = torch.load(last, weights_only=False)["state_dict"]
        found = {"losses": module.losses, "validated": module.validated}
        found["sums"] = module.sums
        names = ("train_loss_epoch", "train_accuracy_epoch")
        found["logged"] = [trainer.callback_metrics[name].item() for name in names]
        found |= {name: value.flatten().tolist() for name, value in state.items()}
        Path(written).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
    if dist.is_initialized():
        dist.destroy_process_group()
