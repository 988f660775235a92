"""Small Llama with random weights: a plain single-device program that `shardc compile` reads.

shardc compile examples/llama.py --mesh data=2,tensor=2 --plan 'data*tensor' -o out/
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def build():
    """Return the model, its optimizer and one global batch of token ids."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    tokens = torch.randint(0, config.vocab_size, (8, 64))
    return model, optimizer, {"input_ids": tokens, "labels": tokens}
