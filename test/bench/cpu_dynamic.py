"""A whole model of any batch and length: one compile each of shardc's backend and of TorchInductor, and eager
beside them.

    python test/bench/cpu_dynamic.py                    # llama, 10M parameters, forward and backward, one
    thread python test/bench/cpu_dynamic.py --models gpt2 bert

Models are compiled with ``dynamic=True`` and first called at 4 x 128. Times are medians of ``--repeats``
rounds, on the thread's own clock; a round calls each contender once at each size.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from math import exp, log

import torch
import whole_models
from machine import heading, table

BACKENDS = ("shardc", "inductor", "eager")
SIZES = ((4, 128), (2, 128), (8, 64), (3, 100), (8, 33))
MODELS = ("llama", "gpt2", "bert")


def _step(model: torch.nn.Module, backend: str) -> Callable[[torch.Tensor], float]:
    called = model if backend == "eager" else torch.compile(model, backend=backend, dynamic=True)

    def step(ids: torch.Tensor) -> float:
        """Seconds of one forward and backward."""
        model.zero_grad(set_to_none=True)
        started = time.thread_time()
        called(input_ids=ids, labels=ids).loss.backward()
        return time.thread_time() - started

    return step


def _check(models: dict[str, torch.nn.Module]) -> None:
    for backend, model in models.items():
        for (name, p), q in zip(model.named_parameters(), models["eager"].parameters(), strict=True):
            error = (p.grad - q.grad).norm() / (q.grad.norm() + 1e-6)
            assert error < 1e-3, f"{backend}: the gradient of {name} is off by {error:.1e}"


def measure(name: str, size: str, repeats: int) -> list[dict[str, float]]:
    """Median seconds of a step at each of :data:`SIZES`, by contender."""
    vocabulary = whole_models.SIZES[size]["vocabulary"]
    made, _ = whole_models.make(name, size)
    models = {backend: copy.deepcopy(made) for backend in BACKENDS}
    steps = {backend: _step(model, backend) for backend, model in models.items()}
    inputs = [torch.randint(vocabulary, shape) for shape in SIZES]
    times: list[dict[str, list[float]]] = [{backend: [] for backend in BACKENDS} for _ in SIZES]
    for number in range(repeats + 1):
        for ids, seconds in zip(inputs, times, strict=True):
            for backend, step in steps.items():
                taken = step(ids)
                seconds[backend] += [taken] * (number > 0)  # the first round compiles
            if not number:
                _check(models)
    return [{backend: statistics.median(s) for backend, s in seconds.items()} for seconds in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["llama"])
    parser.add_argument("--size", choices=list(whole_models.SIZES), default="10M")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(heading("Any batch and length: forward and backward, one thread"))
    for name in options.models:
        found = measure(name, options.size, options.repeats)
        rows = [
            [f"{b} x {s}", *(f"{1e3 * t[x]:.1f}" for x in BACKENDS), f"{t['shardc'] / t['inductor']:.2f}"]
            for (b, s), t in zip(SIZES, found, strict=True)
        ]
        mean = exp(sum(log(t["shardc"] / t["inductor"]) for t in found) / len(found))
        print(table([f"{name}, ms", *BACKENDS, "ratio"], rows))
        print(f"{name}: geometric mean of the ratio to Inductor {mean:.2f}\n")


if __name__ == "__main__":
    main()
