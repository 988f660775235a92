"""Train a small Llama by Hugging Face's Trainer, with evaluation, accuracy and checkpoints.

python examples/training/trainer_plain.py OUT
"""

import argparse

import numpy as np
import torch
from transformers import EvalPrediction, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VOCAB, LENGTH = 64, 16


def texts(rows: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Made text: each token is the last one times 5, plus 3, or noise."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCAB, (rows, LENGTH), generator=random)
    for i in range(LENGTH - 1):
        is_noise = torch.rand(rows, generator=random) < 0.1
        tokens[:, i + 1] = torch.where(is_noise, tokens[:, i + 1], (5 * tokens[:, i] + 3) % VOCAB)
    return [{"input_ids": row, "labels": row} for row in tokens]


def accuracy(evaluated: EvalPrediction) -> dict[str, float]:
    logits, labels = np.asarray(evaluated.predictions), np.asarray(evaluated.label_ids)
    return {"accuracy": (logits[:, :-1].argmax(-1) == labels[:, 1:]).mean()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    model = LlamaForCausalLM(config)
    settings = TrainingArguments(
        args.out,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        logging_steps=1,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="tensorboard",
        use_cpu=True,
    )
    trainer = Trainer(
        model=model,
        args=settings,
        train_dataset=texts(72, seed=1),  # the last batch of an epoch has 8 rows
        eval_dataset=texts(24, seed=2),
        compute_metrics=accuracy,
    )
    trainer.train()
    for entry in trainer.state.log_history:
        for name in entry.keys() & {"loss", "grad_norm", "eval_loss", "eval_accuracy"}:
            print(f"step {entry['step']} {name} {entry[name]:.6f}")


if __name__ == "__main__":
    main()
