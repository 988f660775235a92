"""Fine-tune a folder of Hugging Face weights and write another.

python examples/training/fine_tune_plain.py FOLDER OUT
"""

import argparse

import torch
from transformers import AutoModelForCausalLM


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()

    model = AutoModelForCausalLM.from_pretrained(args.folder)
    for parameter in model.get_input_embeddings().parameters():
        parameter.requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.config.vocab_size, (64, 32), generator=random)

    for i in range(args.steps):
        rows = tokens[torch.randint(64, (8,), generator=random)]
        loss = model(input_ids=rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        print(f"step {i} loss {loss.item():.6f}")
    model.save_pretrained(args.out)


if __name__ == "__main__":
    main()
