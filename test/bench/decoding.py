"""Decoding a token with a static cache, in place, against TorchInductor and eager in one run.

    python test/bench/decoding.py [--lengths 256 4096] [--layers 4] [--repeats 41] [--threads 1]

A Llama of 8 heads of queries and 4 of keys, of width 512, with random weights in f32. The cache has room for
``--lengths`` tokens and holds 64. Wall time, interleaved medians; the logits of all contenders agree.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import torch
from cpu_kernels import measure
from machine import heading, table
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

PROMPT = 64
BACKENDS = ("shardc", "inductor", "eager")


def decoder(model: LlamaForCausalLM, length: int, backend: str) -> Callable[[], Tensor]:
    """Return a function that decodes one more token and returns its logits."""
    cache = StaticCache(config=model.config, max_cache_len=length)
    prompt = torch.arange(PROMPT)[None]
    model(prompt, past_key_values=cache, use_cache=True, cache_position=prompt[0])

    def step(token: Tensor, position: Tensor) -> Tensor:
        return model(token, past_key_values=cache, use_cache=True, cache_position=position).logits

    run = step if backend == "eager" else torch.compile(step, backend=backend)
    token, position = torch.tensor([[5]]), torch.tensor([PROMPT])

    def decode() -> Tensor:
        position.copy_((position + 1) % length)
        return run(token, position)

    return decode


@torch.no_grad()
def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--lengths", nargs="*", type=int, default=[256, 4096])
    options.add_argument("--layers", type=int, default=4)
    options.add_argument("--repeats", type=int, default=41)
    options.add_argument("--threads", type=int, default=1)
    chosen = options.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 512,
        "intermediate_size": 1376,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    }
    config = LlamaConfig(
        num_hidden_layers=chosen.layers, vocab_size=4000, max_position_embeddings=8192, **sizes
    )
    model = LlamaForCausalLM(config).eval()
    rows = []
    for length in chosen.lengths:
        torch._dynamo.reset()
        contenders = {backend: decoder(model, length, backend) for backend in BACKENDS}
        logits = [decode() for decode in contenders.values()]
        for other in logits[1:]:
            torch.testing.assert_close(logits[0], other, rtol=1e-4, atol=1e-4)
        seconds = measure(contenders, chosen.repeats, time.perf_counter)
        ms = [1e3 * seconds[backend] for backend in BACKENDS]
        rows.append([length, *ms, ms[0] / ms[1], ms[0] / ms[2]])
    print(heading("Decoding with a static cache"))
    print(table(["cache", "shardc ms", "Inductor ms", "eager ms", "/ Inductor", "/ eager"], rows))


if __name__ == "__main__":
    main()
