"""Settings of Lightning that a compiled step does not support are refused with the user's line."""

from __future__ import annotations

from pathlib import Path

import lightning as L
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from shardc.diagnostics.integrations import TrainerArgumentRefused
from shardc.integrations import ShardcStrategy
from shardc.integrations.lightning_arguments import check_module, options_of
from shardc.integrations.training_step import TrainingStep
from shardc.options.step import StepOptions


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Manual(Net):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Hooked(Net):
    def on_after_backward(self):
        print("backward")


class Indexed(Net):
    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).mean() * (batch_idx % 2)


class Logging(Net):
    def training_step(self, batch, batch_idx):
        output = self.layer(batch[0])
        self.log("outputs", output)
        return output.mean()


class Returning(Net):
    def training_step(self, batch, batch_idx):
        output = self.layer(batch[0])
        return {"loss": output.mean(), "output": output}


def check(module: Net, optimizers: int = 1, **settings: object) -> None:
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, **settings)
    check_module(trainer, module, [module.configure_optimizers()] * optimizers, "user.py:7")


def test_what_is_honoured_is_not_refused() -> None:
    check(Net())
    check(Net(), gradient_clip_val=0.5, precision="bf16-mixed")


@pytest.mark.parametrize(
    "said, settings",
    [
        ("accumulate_grad_batches=2", {"accumulate_grad_batches": 2}),
        ("gradient_clip_algorithm", {"gradient_clip_val": 1.0, "gradient_clip_algorithm": "value"}),
        ("precision='64-true'", {"precision": "64-true"}),
        ("2 optimizers", {"optimizers": 2}),
    ],
)
def test_a_setting_is_refused(said: str, settings: dict) -> None:
    with pytest.raises(TrainerArgumentRefused, match=said) as raised:
        check(Net(), **settings)
    assert raised.value.where == "user.py:7"


@pytest.mark.parametrize("kind, said", [(Manual, "automatic_optimization"), (Hooked, "on_after_backward")])
def test_a_module_is_refused_at_its_line(kind: type[Net], said: str) -> None:
    with pytest.raises(TrainerArgumentRefused, match=said) as raised:
        check(kind())
    file, line = raised.value.where.split(":")
    text = Path(file).read_text().splitlines()[int(line) - 1]
    assert file == __file__ and ("class Manual" in text or "def on_after_backward" in text)


@pytest.mark.parametrize(
    "kind, said", [(Indexed, "batch_idx"), (Logging, "self.log='outputs'"), (Returning, "output")]
)
def test_a_training_step_is_refused_at_its_line(kind: type[Net], said: str) -> None:
    with pytest.raises(TrainerArgumentRefused, match=said) as raised:
        TrainingStep(kind(), takes_index=True)((torch.ones(3, 4),))
    assert raised.value.where.startswith(f"{__file__}:")


class Logs(Net):
    def training_step(self, batch, batch_idx):
        output = self.layer(batch[0])
        loss = output.square().mean()
        self.log_dict({"loss": loss, "largest.of": output.max()})
        return loss


def test_values_beside_the_loss_are_outputs_of_the_step() -> None:
    torch.manual_seed(0)
    step, batch = TrainingStep(Logs(), takes_index=True), (torch.ones(3, 4),)
    before = torch.get_rng_state()
    assert step.outputs(batch) == {"1 largest_of": "1 largest_of"}
    assert torch.equal(torch.get_rng_state(), before)
    found = step(batch)
    assert found["1 largest_of"] == step.get_submodule("layer")(*batch).max()
    assert [(name, key) for name, key, _ in step.logged] == [("loss", "loss"), ("largest.of", "1 largest_of")]


def test_clipping_and_precision_come_from_the_trainer() -> None:
    trainer = L.Trainer(accelerator="cpu", logger=False, gradient_clip_val=0.5, precision="bf16-mixed")
    found = options_of(trainer, StepOptions.of({"mesh": {"data": 1}})).numerics
    assert (found.clip_grad_norm, found.clip_parameters, found.autocast) == (0.5, "optimizer", "bfloat16")


def test_the_strategy_refuses_at_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # Lightning sets them, and leaves them; so they go after the test
        monkeypatch.delenv(name)
    loader = DataLoader(TensorDataset(torch.ones(4, 4)), batch_size=2)
    strategy = ShardcStrategy(mesh={"data": 1})
    trainer = L.Trainer(
        accelerator="cpu", devices=1, strategy=strategy, logger=False, default_root_dir=tmp_path, max_epochs=1
    )
    with pytest.raises(TrainerArgumentRefused, match="automatic_optimization"):
        trainer.fit(Manual(), loader)
