"""Mixture of experts: a tiny Mixtral, with the plans for tensors and experts that transformers ships for it.

python examples/experts.py
shardc compile examples/experts.py --mesh experts=2,tensor=2 --plan 'experts*tensor' -o out/
"""

import torch
from transformers import MixtralConfig, MixtralForCausalLM

import shardc


def loss(output, batch):
    """Return the model's own loss."""
    return output.loss


def build():
    """Return the model, its optimizer, the loss, and a batch of token ids."""
    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
    )
    model = MixtralForCausalLM(config)
    tokens = torch.randint(0, config.vocab_size, (4, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    return model, optimizer, {"input_ids": tokens, "labels": tokens}, loss


def main():
    """Prove the step on simulated devices, then train on this one."""
    mesh, plan = {"experts": 2, "tensor": 2}, "experts*tensor"
    proof = shardc.compile_step(*build()[:3], loss=loss, mesh=mesh, plan=plan).check()
    print("proved" if proof.passed else proof.render())
    model, optimizer, batch, _ = build()
    step = shardc.compile_step(model, optimizer, batch, loss=loss, mesh={"data": 1})
    for number in range(10):
        print(f"step {number} loss {float(step(batch)):.4f}")


if __name__ == "__main__":
    main()
