"""Arguments of a Trainer that a compiled step cannot honour are refused by name, with the user's line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset
from transformers import TrainingArguments

from shardc.diagnostics.integrations import (
    BatchesDiffer,
    CheckpointOfAnother,
    PackageMissing,
    TrainerArgumentRefused,
)
from shardc.integrations import ShardedTrainer
from shardc.integrations.global_batch import joined
from shardc.integrations.packages import require
from shardc.integrations.trainer_arguments import data_size
from shardc.options.step import StepOptions

SHARD = {"mesh": {"data": 1}}


def trainer(tmp_path: Path, rows: object = None, shard: object = SHARD, **arguments) -> ShardedTrainer:
    args = TrainingArguments(str(tmp_path / "out"), use_cpu=True, **arguments)
    return ShardedTrainer(model=nn.Linear(2, 2), args=args, shard=shard, train_dataset=rows)


@pytest.mark.parametrize(
    "argument, value",
    [
        ("fp16", True),
        ("torch_compile", True),
        ("neftune_noise_alpha", 5.0),
        ("auto_find_batch_size", True),
        ("optim", "adafactor"),
        ("torch_empty_cache_steps", 2),
        ("bf16_full_eval", True),
        ("ddp_bucket_cap_mb", 25),
        ("use_liger_kernel", True),
        ("train_sampling_strategy", "batch_rebalance"),
        ("include_num_input_tokens_seen", "all"),
    ],
)
def test_an_argument_is_refused(argument: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(TrainerArgumentRefused, match=argument) as raised:
        trainer(tmp_path, **{argument: value})
    assert str(value) in str(raised.value) and "try: use" in str(raised.value)
    assert raised.value.where.startswith(f"{__file__}:")


@pytest.mark.parametrize("name, value", [("deepspeed", {"a": 1}), ("fsdp", "full_shard")])
def test_other_ways_to_shard_are_refused(name: str, value: object, tmp_path: Path) -> None:
    args = TrainingArguments(str(tmp_path), use_cpu=True)
    setattr(args, name, value)  # transformers itself checks some of them for GPUs
    with pytest.raises(TrainerArgumentRefused, match=name):
        ShardedTrainer(model=nn.Linear(2, 2), args=args, shard=SHARD)


def test_batches_cut_by_accelerate_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainerArgumentRefused, match="split_batches"):
        trainer(tmp_path, accelerator_config={"split_batches": True})


def test_a_loss_of_a_subclass_is_refused(tmp_path: Path) -> None:
    class Own(ShardedTrainer):
        def compute_loss(self, model, inputs, **_):
            return model(**inputs)

    with pytest.raises(TrainerArgumentRefused, match="compute_loss_func"):
        Own(model=nn.Linear(2, 2), args=TrainingArguments(str(tmp_path), use_cpu=True), shard=SHARD)


def test_a_model_made_later_is_refused(tmp_path: Path) -> None:
    args = TrainingArguments(str(tmp_path), use_cpu=True)
    with pytest.raises(TrainerArgumentRefused, match="model_init"):
        ShardedTrainer(model=nn.Linear(2, 2), args=args, shard=SHARD, model_init=lambda: nn.Linear(2, 2))


def test_an_iterable_dataset_is_refused(tmp_path: Path) -> None:
    class Stream(IterableDataset):
        def __iter__(self):
            yield torch.zeros(2)

    with pytest.raises(TrainerArgumentRefused, match="Stream"):
        trainer(tmp_path, Stream(), max_steps=1).train()


def test_a_smaller_last_batch_comes_whole_unless_it_is_dropped(tmp_path: Path) -> None:
    rows = TensorDataset(torch.zeros(10, 2))
    made = trainer(tmp_path, rows, per_device_train_batch_size=4)
    assert len(made.get_train_dataloader()) == 3
    kept = trainer(tmp_path, rows, per_device_train_batch_size=4, dataloader_drop_last=True)
    assert len(kept.get_train_dataloader()) == 2


def test_a_plain_checkpoint_is_refused(tmp_path: Path) -> None:
    made = trainer(tmp_path, TensorDataset(torch.zeros(8, 2)))
    with pytest.raises(CheckpointOfAnother, match="shardc"):
        made._load_optimizer_and_scheduler(str(tmp_path))


def test_the_parts_of_a_batch() -> None:
    def parts(mesh: dict, plan: object) -> int:
        return data_size(StepOptions.of({"mesh": mesh, "plan": plan}))

    assert parts({"data": 2, "tensor": 3}, "zero3*tensor") == 2
    assert parts({"data": 2, "tensor": 3}, "tensor") == 1
    assert parts({"outer": 2, "inner": 3}, "data:outer*zero3:inner") == 6
    assert parts({"data": 2, "tensor": 3}, {"*.weight": ["tensor", None]}) == 2


def test_micro_batches_are_joined() -> None:
    parts = [{"x": torch.full((2, 3), float(i)), "scale": 2} for i in range(3)]
    batch = joined(parts)
    assert batch["scale"] == 2 and batch["x"].tolist() == [[float(i)] * 3 for i in (0, 0, 1, 1, 2, 2)]
    with pytest.raises(BatchesDiffer, match=r"x has rows of shapes \(3,\), \(4,\)"):
        joined([*parts, {"x": torch.zeros(2, 4), "scale": 2}])
    with pytest.raises(BatchesDiffer, match="labels"):
        joined([*parts, {"labels": torch.zeros(2)}])


def test_missing_and_old_packages_are_named() -> None:
    with pytest.raises(PackageMissing, match=r"not installed.*\n.*pip install 'no-such-package>=1.0'"):
        require("Sharded", "no-such-package", "1.0")
    with pytest.raises(PackageMissing, match=r"needs torch 99\.0 or newer, and 2"):
        require("Sharded", "torch", "99.0")
