"""Trains a small Llama by Hugging Face's Trainer, plain or sharded, and writes its log and its weights.

trainer_worker.py WRITTEN ARGUMENTS SHARD MORE: JSON of TrainingArguments, of ``shard``, of the rest.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VOCABULARY = 32
EVALUATED = ("loss", "accuracy", "rows", "sum")


class Rows(Dataset):
    """Token ids; the labels of some are left out."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, VOCABULARY, (count, 8), generator=generator)
        self.labels = self.tokens.masked_fill(torch.rand((count, 8), generator=generator) < 0.2, -100)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[row], "labels": self.labels[row]}


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config)


def metrics(evaluated) -> dict[str, float]:
    """Accuracy of the next token, and a number that tells rows that were left out or taken twice."""
    logits, labels = evaluated.predictions[:, :-1], evaluated.label_ids[:, 1:]
    right = (logits.argmax(-1) == labels)[labels != -100]
    return {"accuracy": right.mean(), "rows": len(logits), "sum": numpy.abs(logits).sum()}


def trainer(arguments: dict, shard: dict | None, more: dict) -> Trainer:
    plain = {"use_cpu": True, "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True}
    args = TrainingArguments("out", **{**plain, **arguments})
    data = {"train_dataset": Rows(more.get("rows", 32), 1), "eval_dataset": Rows(more.get("held_out", 12), 2)}
    if more.get("metrics"):
        data["compute_metrics"] = metrics
    if more.get("loss"):
        data["compute_loss_func"] = lambda out, labels, num_items_in_batch: (
            out.logits.square().sum() / num_items_in_batch
        )
    if shard is None:
        return Trainer(model=model(), args=args, **data)
    from shardc.integrations import ShardedTrainer

    return ShardedTrainer(model=model(), args=args, shard=shard, **data)


def main(written: str, arguments: str, shard: str, more: str) -> None:
    wanted = json.loads(more)
    made = trainer(json.loads(arguments), json.loads(shard), wanted)
    made.train(resume_from_checkpoint=wanted.get("resume"))
    found = {
        key: [entry[key] for entry in made.state.log_history if key in entry]
        for key in ("loss", "learning_rate", "grad_norm", *(f"eval_{name}" for name in EVALUATED))
    }
    if wanted.get("predict"):
        predicted = made.predict(Rows(10, 3))
        found |= {"predictions": predicted.predictions.flatten().tolist()}
    folder = Path(f"final-{Path(written).stem}")
    made.save_model(str(folder))
    if dist.is_initialized():
        dist.barrier()
    if int(os.environ.get("RANK", 0)) == 0:
        weights = load_file(folder / "model.safetensors")
        found |= {name: value.flatten().tolist() for name, value in weights.items()}
        Path(written).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
    if dist.is_initialized():
        dist.destroy_process_group()
