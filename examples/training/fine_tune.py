"""Fine-tune a folder of Hugging Face weights and write another.

torchrun --nproc-per-node 4 examples/training/fine_tune.py FOLDER OUT
"""

import argparse

import torch
from transformers import AutoModelForCausalLM

import shardc


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
    batch = {"input_ids": tokens[:8], "labels": tokens[:8]}
    mesh = {"data": 2, "tensor": 2}
    clip = {"clip_grad_norm": 1.0, "clip_parameters": "optimizer"}
    step = shardc.compile_step(model, optimizer, batch, mesh=mesh, plan="zero3*tensor", numerics=clip)

    for i in range(args.steps):
        rows = tokens[torch.randint(64, (8,), generator=random)]
        loss = step({"input_ids": rows, "labels": rows})
        print(f"step {i} loss {loss.item():.6f}")
    shardc.export_weights(step, model, args.out)


if __name__ == "__main__":
    main()
