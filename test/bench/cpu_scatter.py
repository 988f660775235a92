"""Gradients of embeddings on the CPU: ``torch.compile(backend="shardc")`` against TorchInductor and eager,
interleaved.

    python test/bench/cpu_scatter.py --threads 1
    python test/bench/cpu_scatter.py --cases gpt2-tied --repeats 31

``tied`` rows add the gradient to what a product of [rows, 8] and [8, width] makes, as a tied weight's other
gradient is made; the product is part of the time. Indices are drawn as words are, by Zipf's law. Medians of
``--repeats`` rounds, each of which calls each contender once, in turn first. One thread is timed in its own
CPU time, several in wall time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from cpu_kernels import measure
from machine import heading, table
from torch import Tensor

aten = torch.ops.aten


@dataclass(frozen=True)
class Case:
    tokens: int
    rows: int
    width: int
    tied: bool = False
    dtype: torch.dtype = torch.float32


CASES = {
    "small": Case(512, 1000, 256),
    "positions": Case(1024, 1024, 768),
    "types": Case(4096, 2, 768),
    "10M": Case(512, 8000, 384),
    "10M-tied": Case(512, 8000, 384, tied=True),
    "gpt2": Case(1024, 50257, 768),
    "gpt2-tied": Case(1024, 50257, 768, tied=True),
    "gpt2-8k-tokens": Case(8192, 50257, 768),
    "gpt2-bf16": Case(1024, 50257, 768, dtype=torch.bfloat16),
    "llama-vocabulary": Case(2048, 128256, 512),
}


def gradient(case: Case) -> Callable[..., Tensor]:
    if case.tied:
        return lambda u, i, a, b: a @ b + aten.embedding_dense_backward(u, i, case.rows, -1, False)
    return lambda u, i: aten.embedding_dense_backward(u, i, case.rows, -1, False)


def inputs(case: Case) -> list[Tensor]:
    torch.manual_seed(0)
    words = torch.multinomial(1 / torch.arange(1, case.rows + 1), case.tokens, replacement=True)
    made = [torch.randn(case.tokens, case.width, dtype=case.dtype), words]
    if case.tied:
        made += [torch.randn(case.rows, 8, dtype=case.dtype), torch.randn(8, case.width, dtype=case.dtype)]
    return made


def compare(name: str, threads: int, repeats: int) -> list[object]:
    case = CASES[name]
    call, tensors = gradient(case), inputs(case)
    torch._dynamo.reset()
    calls = {
        "shardc": torch.compile(call, backend="shardc", dynamic=False),
        "inductor": torch.compile(call, dynamic=False),
        "eager": call,
    }
    exact = call(*(t.double() if t.is_floating_point() else t for t in tensors))
    for contender in ("shardc", "eager"):
        error = (calls[contender](*tensors).double() - exact).abs().max()
        assert error <= 4e-2 * exact.abs().max() if case.dtype == torch.bfloat16 else 1e-4, (
            f"{contender}: off by {error:.1e}"
        )
    clock = time.thread_time if threads == 1 else time.perf_counter
    runners = {contender: (lambda c=c: c(*tensors)) for contender, c in calls.items()}
    with torch.no_grad():
        found = measure(runners, repeats, clock)
    ms = [1e3 * found[c] for c in calls]
    return [name, case.tokens, case.rows, case.width, threads, *ms, ms[0] / ms[1], ms[0] / ms[2]]


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    options.add_argument("--threads", nargs="*", type=int, default=[1, torch.get_num_threads()])
    options.add_argument("--repeats", type=int, default=15)
    chosen = options.parse_args()
    rows = []
    for threads in dict.fromkeys(chosen.threads):
        torch.set_num_threads(threads)
        for name in chosen.cases:
            rows.append(compare(name, threads, chosen.repeats))
            print(" ".join(f"{c:.3f}" if isinstance(c, float) else str(c) for c in rows[-1]), flush=True)
    columns = [
        "case",
        "tokens",
        "rows",
        "width",
        "threads",
        "shardc ms",
        "Inductor ms",
        "eager ms",
        "/ Inductor",
        "/ eager",
    ]
    print(heading("Gradients of embeddings"))
    print(table(columns, rows))


if __name__ == "__main__":
    main()
